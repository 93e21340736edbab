"""FOLLOW sets of rules made of lexemes: what may come after what."""

from collections.abc import Callable, Iterable
from itertools import combinations

from llamina.grammar.nodes import Alt, Lexeme, Node, Ref, Repeat, Rules, Seq, Token

Symbol = Lexeme | Token
Part = tuple[set[Symbol], set[Symbol], bool]  # FIRST set, LAST set, nullable


class FollowSets:
    """`after` has the lexemes and tokens that may follow each one, in any context."""

    def __init__(
        self, rules: Rules, nullable: Callable[[Lexeme], bool], overlap: Callable[[Lexeme, Lexeme], bool]
    ) -> None:
        self._rules, self._nullable, self._overlap = rules, nullable, overlap
        self._parts: dict[str, Part] = {name: (set(), set(), False) for name in rules}
        self.after: dict[Symbol, set[Symbol]] = {}
        while self._grew():
            pass

    def _grew(self) -> bool:
        """One iteration towards the fixed point; whether any set grew."""
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
        first: set[Symbol] = set()
        last: set[Symbol] = set()
        nullable = True
        for next_first, next_last, next_nullable in parts:
            self._join(last, next_first)
            first |= next_first if nullable else set()
            last = next_last | last if next_nullable else set(next_last)
            nullable = nullable and next_nullable
        return first, last, nullable

    def _join(self, ends: set[Symbol], starts: set[Symbol]) -> None:
        for end in ends:
            self.after.setdefault(end, set()).update(starts)

    def candidates(self) -> list[list[Lexeme]]:
        """Return the sets of lexemes that may come next: at the beginning, and after each lexeme.

        Lexemes that may be the same text at the same place count as one: what may follow either may come next.
        """
        groups: list[set[Symbol]] = [{end} for end in self.after]
        while True:
            sets = [self._parts["root"][0], *({x for end in group for x in self.after[end]} for group in groups)]
            lexemes = [sorted((x for x in of if isinstance(x, Lexeme)), key=lambda x: x.number) for of in sets]
            merged = self._merge(groups, lexemes)
            if len(merged) == len(groups):
                return [list(of) for of in dict.fromkeys(map(tuple, lexemes))]
            groups = merged

    def _merge(self, groups: list[set[Symbol]], candidates: list[list[Lexeme]]) -> list[set[Symbol]]:
        """Return the groups, with those joined whose members may be the same text at the same place."""
        home: dict[Symbol, set[Symbol]] = {end: group for group in groups for end in group}
        for lexemes in candidates:
            for one, other in combinations([x for x in lexemes if x in home], 2):
                if home[one] is not home[other] and self._overlap(one, other):
                    home[one] |= home[other]
                    home.update(dict.fromkeys(home[other], home[one]))
        return list({id(group): group for group in home.values()}.values())
