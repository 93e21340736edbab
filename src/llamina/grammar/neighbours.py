"""What may come after what in rules made of lexemes."""

from collections.abc import Callable, Iterable
from itertools import combinations

from llamina.grammar.nodes import Alt, Lexeme, Node, Ref, Repeat, Rules, Seq, Token

End = Lexeme | Token
Part = tuple[set[End], set[End], bool]  # what it may begin with, what it may end with, whether it may be empty


class Neighbours:
    """`after` tells for each lexeme or token what may come next; contexts are not told apart."""

    def __init__(
        self, rules: Rules, nullable: Callable[[Lexeme], bool], overlap: Callable[[Lexeme, Lexeme], bool]
    ) -> None:
        self._rules, self._nullable, self._overlap = rules, nullable, overlap
        self._parts: dict[str, Part] = {name: (set(), set(), False) for name in rules}
        self.after: dict[End, set[End]] = {}
        while self._grew():
            pass

    def _grew(self) -> bool:
        """One more look at all rules; whether that told anything new."""
        before = (self._size(), sum(map(len, self.after.values())))
        for name, body in self._rules.items():
            self._parts[name] = self._part(body)
        return before != (self._size(), sum(map(len, self.after.values())))

    def _size(self) -> int:
        return sum(len(first) + len(last) + nullable for first, last, nullable in self._parts.values())

    def _part(self, node: Node) -> Part:
        match node:
            case Lexeme():
                return {node}, {node}, self._nullable(node)
            case Token():
                return {node}, {node}, False
            case Ref(name):
                return self._parts[name]
            case Seq(items):
                return self._chain(map(self._part, items))
            case Alt(items):
                parts = [self._part(item) for item in items]
                first = {x for part in parts for x in part[0]}
                return first, {x for part in parts for x in part[1]}, any(part[2] for part in parts)
            case Repeat(item, low, high):
                first, last, nullable = self._part(item)
                if high is None or high > 1:
                    self._join(last, first)
                return (first, last, nullable or low == 0) if high != 0 else (set(), set(), True)
        raise TypeError(node)

    def _chain(self, parts: Iterable[Part]) -> Part:
        first: set[End] = set()
        last: set[End] = set()
        nullable = True
        for next_first, next_last, next_nullable in parts:
            self._join(last, next_first)
            first |= next_first if nullable else set()
            last = next_last | last if next_nullable else set(next_last)
            nullable = nullable and next_nullable
        return first, last, nullable

    def _join(self, ends: set[End], starts: set[End]) -> None:
        for end in ends:
            self.after.setdefault(end, set()).update(starts)

    def rows(self) -> list[list[Lexeme]]:
        """Sets of lexemes that may stand in one place: the beginning, and after each; after several if one text may
        be all of them."""
        groups: list[set[End]] = [{end} for end in self.after]
        while True:
            ends = [self._parts["root"][0], *({x for end in group for x in self.after[end]} for group in groups)]
            rows = [sorted((x for x in row if isinstance(x, Lexeme)), key=lambda x: x.number) for row in ends]
            merged = self._merge(groups, rows)
            if len(merged) == len(groups):
                return [list(row) for row in dict.fromkeys(map(tuple, rows))]
            groups = merged

    def _merge(self, groups: list[set[End]], rows: list[list[Lexeme]]) -> list[set[End]]:
        """Groups whose members may be the same text in the same place become one."""
        home: dict[End, set[End]] = {end: group for group in groups for end in group}
        for row in rows:
            for one, other in combinations([x for x in row if x in home], 2):
                if home[one] is not home[other] and self._overlap(one, other):
                    home[one] |= home[other]
                    home.update(dict.fromkeys(home[other], home[one]))
        return list({id(group): group for group in home.values()}.values())
