"""Writes rules made of lexemes in llguidance's dialect of Lark."""

from llamina.grammar.nodes import Alt, Chars, Lexeme, Node, Ref, Repeat, Rules, Seq, Token


def write(pieces: Rules, rules: Rules) -> str:
    """Return the Lark text of `pieces`, rules made of lexemes; `rules` are those that lexemes refer to."""
    return _Writer(pieces, rules).write()


class _Writer:
    """Numbers the rules, for their names may not be valid in Lark."""

    def __init__(self, pieces: Rules, rules: Rules) -> None:
        self._rules = rules
        self._pieces = pieces
        self._names = {name: f"r{i}" for i, name in enumerate(pieces)} | {"root": "start"}
        self._terminals: dict[Node, str] = {}
        self._lines: list[str] = []

    def write(self) -> str:
        lines = [f"{self._names[name]}: {self._rule(body)}" for name, body in self._pieces.items()]
        return "\n".join(["%llguidance {}", *lines, *self._lines, ""])

    def _rule(self, node: Node) -> str:
        match node:
            case Lexeme(inner, _):
                return self._terminal(inner)
            case Token(number, negated):
                return f"<[{'^' * negated}{number}]>"
            case Ref(name):
                return self._names[name]
            case Seq(items):
                return "(" + " ".join(map(self._rule, items)) + ")" if items else '""'
            case Alt(items):
                return "(" + " | ".join(map(self._rule, items)) + ")"
            case Repeat(item, low, high):
                return f"({self._rule(item)}){_times(low, high)}" if high != 0 else '""'
        raise TypeError(node)

    def _terminal(self, node: Node) -> str:
        """Return the name of the terminal for a regular node."""
        if node not in self._terminals:
            name = self._terminals[node] = f"T{len(self._terminals)}"
            self._lines.append(f"{name}: {self._expression(node)}")
        return self._terminals[node]

    def _expression(self, node: Node) -> str:
        match node:
            case Chars(ranges):
                return f"/[{''.join(_range(*pair) for pair in ranges)}]/"
            case Ref(name):
                return self._terminal(self._rules[name])
            case Seq(items):
                return "(" + " ".join(map(self._expression, items)) + ")" if items else '""'
            case Alt(items):
                return "(" + " | ".join(map(self._expression, items)) + ")"
            case Repeat(item, low, high):
                return f"({self._expression(item)}){_times(low, high)}" if high != 0 else '""'
        raise TypeError(node)


def _times(low: int, high: int | None) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return simple.get((low, high)) or f"{{{low},{'' if high is None else high}}}"


def _range(low: int, high: int) -> str:
    return f"\\x{{{low:X}}}" if low == high else f"\\x{{{low:X}}}-\\x{{{high:X}}}"
