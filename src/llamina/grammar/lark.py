"""Rules made of lexemes, written down in llguidance's dialect of Lark."""

from llamina.grammar.nodes import Alt, Chars, Lexeme, Node, Ref, Repeat, Rules, Seq, Token


def write(pieces: Rules, rules: Rules) -> str:
    """`pieces` are what the grammar is made of; `rules` tell what the lexemes mention."""
    return _Writer(pieces, rules).write()


class _Writer:
    """Names are numbered, for those of the grammar may be no names in Lark."""

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
        """The name of the terminal that says this."""
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
