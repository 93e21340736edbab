"""A parser of GBNF, llama.cpp's grammar language."""

from collections.abc import Callable

from llamina.errors import InvalidGrammar
from llamina.grammar.nodes import (
    ANY,
    EMPTY,
    MAX_CODE_POINT,
    Chars,
    Node,
    Ref,
    Repeat,
    Rules,
    Token,
    characters,
    choice,
    references,
    sequence,
)

ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
HEX = {"x": 2, "u": 4, "U": 8}
MAX_REPEATS = 1_000_000
MAX_DEPTH = 100  # of nested brackets

TokenFinder = Callable[[str], int | None]  # text such as <think> → the token whose text it is


def parse(text: str, find_token: TokenFinder) -> Rules:
    """Return the rules of a grammar, `root` among them. Raises InvalidGrammar."""
    rules = _Parser(text, find_token).parse()
    if "root" not in rules:
        raise InvalidGrammar(f"the grammar has no rule `root` (it has: {', '.join(rules) or 'none'})", "grammar")
    for name, body in rules.items():
        for missing in (ref for ref in references(body) if ref not in rules):
            raise InvalidGrammar(f"rule `{name}` refers to `{missing}`, which the grammar does not define", "grammar")
    return rules


class _Parser:
    def __init__(self, text: str, find_token: TokenFinder) -> None:
        self._text = text
        self._find_token = find_token
        self._at = 0
        self._depth = 0

    def parse(self) -> Rules:
        rules: Rules = {}
        self._space(newlines=True)
        while self._at < len(self._text):
            name, body = self._rule()
            rules[name] = body  # as in llama.cpp, the last definition wins
            self._space(newlines=True)
        return rules

    # ---- characters --------------------------------------------------------------------------------------

    def _peek(self, n: int = 1) -> str:
        return self._text[self._at : self._at + n]

    def _take(self, expected: str) -> bool:
        is_next = self._peek(len(expected)) == expected
        self._at += len(expected) * is_next
        return is_next

    def _expect(self, expected: str) -> None:
        if not self._take(expected):
            raise self._unexpected(repr(expected))

    def _error(self, message: str, at: int) -> InvalidGrammar:
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        return InvalidGrammar(f"grammar, line {line}, column {column}: {message}", "grammar")

    def _unexpected(self, right: str) -> InvalidGrammar:
        """The error for what comes next, or that nothing does, where something else must be."""
        fact = f"{self._peek()!r} stands" if self._peek() else "the grammar ends"
        return self._error(f"{fact} where {right} must be", self._at)

    def _space(self, newlines: bool) -> None:
        while (c := self._peek()) and (c in " \t#" or (newlines and c in "\r\n")):
            self._at += 1
            while c == "#" and self._peek() and self._peek() not in "\r\n":
                self._at += 1

    def _name(self) -> str:
        start = self._at
        while (c := self._peek()) and (c == "-" or (c.isascii() and c.isalnum())):
            self._at += 1
        if self._at == start:
            raise self._unexpected("the name of a rule")
        return self._text[start : self._at]

    def _number(self) -> int:
        start = self._at
        while (c := self._peek()) and c in "0123456789":
            self._at += 1
        if self._at == start:
            raise self._unexpected("a number")
        if self._at - start > 9:
            raise self._error(f"the number has {self._at - start} digits: it must have at most 9", start)
        return int(self._text[start : self._at])

    def _character(self, start: int) -> int:
        """Return the next character of the string or class that begins at `start`."""
        backslash = self._at
        if not self._take("\\"):
            if not self._peek():
                opened, closing = self._text[start], {'"': '"', "[": "]"}[self._text[start]]
                raise self._error(f"{opened} is not closed: {closing} must follow", start)
            self._at += 1
            return ord(self._text[self._at - 1])
        kind = self._peek()
        if kind in HEX and kind:
            digits = self._peek(1 + HEX[kind])[1:]
            if len(digits) < HEX[kind] or not all(d in "0123456789abcdefABCDEF" for d in digits):
                message = f"{digits!r} comes after \\{kind}: it must be {HEX[kind]} hexadecimal digits"
                raise self._error(message, backslash)
            if int(digits, 16) > MAX_CODE_POINT:
                message = f"\\{kind}{digits} is no character: it must be at most \\U{MAX_CODE_POINT:08X}"
                raise self._error(message, backslash)
            self._at += 1 + HEX[kind]
            return int(digits, 16)
        if kind not in ESCAPES or not kind:
            raise self._unexpected('one of t r n x u U \\ " [ ] - after a backslash')
        self._at += 1
        return ord(ESCAPES[kind])

    # ---- rules -------------------------------------------------------------------------------------------

    def _rule(self) -> tuple[str, Node]:
        name = self._name()
        self._space(newlines=False)
        self._expect("::=")
        self._space(newlines=True)
        body = self._alternatives(nested=False)
        if self._peek() and self._peek() not in "\r\n":
            raise self._unexpected("a symbol, `|` or the end of the line")
        return name, body

    def _alternatives(self, nested: bool) -> Node:
        options = [self._sequence(nested)]
        while self._take("|"):
            self._space(newlines=True)
            options.append(self._sequence(nested))
        return choice(options)

    def _sequence(self, nested: bool) -> Node:
        items: list[Node] = []
        while (item := self._symbol(nested)) is not None:
            self._space(nested)
            start = self._at
            while (repeats := self._repeats(nested)) is not None:
                if item == EMPTY:
                    raise self._error("what is repeated is empty: it must have at least one symbol", start)
                item = Repeat(item, *repeats)
            items.append(item)
        return sequence(items)

    def _symbol(self, nested: bool) -> Node | None:
        c = self._peek()
        if c == '"':
            return self._literal()
        if c == "[":
            return self._class()
        if c == "(":
            return self._group()
        if self._take("."):
            return ANY
        if c and c in "<!":
            return self._token()
        if c and c in "*+?{":
            raise self._unexpected("something to repeat")
        if c and (c == "-" or (c.isascii() and c.isalnum())):
            return Ref(self._name())
        return None

    def _literal(self) -> Node:
        start = self._at
        self._expect('"')
        items: list[Node] = []
        while not self._take('"'):
            code = self._character(start)
            items.append(characters([(code, code)]))
        return sequence(items)

    def _class(self) -> Chars:
        start = self._at
        self._expect("[")
        negated, ranges = self._take("^"), []
        while not self._take("]"):
            begin = self._at
            low = high = self._character(start)
            if self._peek() == "-" and self._peek(2) != "-]":
                self._at += 1
                high = self._character(start)
            if high < low:
                message = f"the range ends at {chr(high)!r}: it must end at {chr(low)!r} or later"
                raise self._error(message, begin)
            ranges.append((low, high))
        chars = characters(ranges, negated)
        if not chars.ranges or not ranges:
            text = self._text[start : self._at]
            raise self._error(f"{text} allows no character: it must allow at least one", start)
        return chars

    def _group(self) -> Node:
        self._expect("(")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            message = f"this is nested bracket {self._depth}: there must be at most {MAX_DEPTH}"
            raise self._error(message, self._at - 1)
        self._space(newlines=True)
        body = self._alternatives(nested=True)
        self._expect(")")
        self._depth -= 1
        return body

    def _token(self) -> Token:
        negated, start = self._take("!"), self._at
        self._expect("<")
        if self._take("["):
            number = self._number()
            self._expect("]>")
            return Token(number, negated)
        end = self._text.find(">", self._at)
        if end < 0:
            raise self._error("< is not closed: > must follow the token's name", start)
        self._at = end + 1
        name = self._text[start : self._at]
        token = self._find_token(name)
        if token is None:
            raise self._error(f"{name} is not a token of the vocabulary: give the text of one, or <[number]>", start)
        return Token(token, negated)

    def _repeats(self, nested: bool) -> tuple[int, int | None] | None:
        """Return the bounds of *, +, ? or {..}; None if none comes next."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if (c := self._peek()) and c in simple:
            self._at += 1
            self._space(nested)
            return simple[c]
        start = self._at
        if not self._take("{"):
            return None
        self._space(nested)
        low = self._number()
        high: int | None = low
        self._space(nested)
        if self._take(","):
            self._space(nested)
            high = self._number() if self._peek() and self._peek() in "0123456789" else None
            self._space(nested)
        self._expect("}")
        if max(low, high or 0) > MAX_REPEATS or (high is not None and high < low):
            text = self._text[start : self._at]
            raise self._error(f"{text} must have numbers in ascending order, up to {MAX_REPEATS}", start)
        self._space(nested)
        return low, high
