"""Position automata (Glushkov) of regular nodes, and questions about pairs of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from llamina.errors import InvalidGrammar
from llamina.grammar.nodes import Alt, Chars, Node, Ranges, Ref, Repeat, Rules, Seq

MAX_COPIES = 3  # of a repeated part; more repetitions count as any number, which only errs towards "yes"
MAX_POSITIONS = 3000
MAX_PAIRS = 60_000


class TooLarge(InvalidGrammar):
    """An automaton, or a pair of them, is above the limits."""


@dataclass(slots=True)
class Automaton:
    """A position is a character of the expression; `after` has the positions that may follow each."""

    ranges: list[Ranges] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)
    first: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    nullable: bool = True

    def first_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of characters that may come first."""
        return [pair for position in self.first for pair in self.ranges[position]]


Part = tuple[set[int], set[int], bool]  # first positions, last positions, nullable


def build(node: Node, rules: Rules) -> Automaton:
    """Return the automaton of a node that refers only to regular rules. Raises TooLarge."""
    automaton = Automaton()
    automaton.first, automaton.last, automaton.nullable = _add(node, rules, automaton)
    return automaton


def _add(node: Node, rules: Rules, to: Automaton) -> Part:
    match node:
        case Chars(ranges):
            if len(to.ranges) >= MAX_POSITIONS:
                raise TooLarge(f"the expression has more than {MAX_POSITIONS} positions")
            to.ranges.append(ranges)
            to.after.append(set())
            return {len(to.ranges) - 1}, {len(to.ranges) - 1}, False
        case Ref(name):
            return _add(rules[name], rules, to)
        case Seq(items):
            return _chain((_add(item, rules, to) for item in items), to)
        case Alt(items):
            parts = [_add(item, rules, to) for item in items]
            return set().union(*(p[0] for p in parts)), set().union(*(p[1] for p in parts)), any(p[2] for p in parts)
        case Repeat(item, low, high):
            return _repeated(item, low, high, rules, to)
    raise TypeError(node)


def _repeated(item: Node, low: int, high: int | None, rules: Rules, to: Automaton) -> Part:
    copies = min(MAX_COPIES, max(low, 1 if high is None else high))
    parts = []
    for i in range(copies):
        first, last, nullable = _add(item, rules, to)
        parts.append((first, last, nullable or i >= low))
    if parts and (high is None or high > MAX_COPIES):
        for position in parts[-1][1]:
            to.after[position] |= parts[-1][0]
    return _chain(parts, to)


def _chain(parts: Iterable[Part], to: Automaton) -> Part:
    first: set[int] = set()
    last: set[int] = set()
    nullable = True
    for next_first, next_last, next_nullable in parts:
        for position in last:
            to.after[position] |= next_first
        first |= next_first if nullable else set()
        last = next_last | last if next_nullable else set(next_last)
        nullable = nullable and next_nullable
    return first, last, nullable


Spend = Callable[[int], None]  # called with the amount of work of each step of a search


def goes_on(one: Automaton, other: Automaton, next_ranges: list[tuple[int, int]], spend: Spend) -> bool:
    """Whether, after some text that `one` matches, `other` may continue with a character of `next_ranges`."""

    def continues(p: int, q: int) -> bool:
        return p in one.last and any(_meet(other.ranges[after], next_ranges) for after in other.after[q])

    return bool(next_ranges) and _search(one, other, continues, spend)


def overlap(one: Automaton, other: Automaton, spend: Spend) -> bool:
    """Whether both match some text that is not empty."""
    return _search(one, other, lambda p, q: p in one.last and q in other.last, spend)


def _search(one: Automaton, other: Automaton, test: Callable[[int, int], bool], spend: Spend) -> bool:
    """Whether a pair of positions that some text leads to passes the test. Raises TooLarge."""
    stack = _pairs(one, one.first, other, other.first)
    seen = set(stack)
    while stack:
        p, q = stack.pop()
        if test(p, q):
            return True
        spend(1 + len(one.after[p]) * len(other.after[q]))
        for pair in _pairs(one, one.after[p], other, other.after[q]):
            if pair not in seen:
                seen.add(pair)
                stack.append(pair)
        if len(seen) > MAX_PAIRS:
            raise TooLarge(f"more than {MAX_PAIRS} pairs of positions")
    return False


def _pairs(one: Automaton, some: set[int], other: Automaton, others: set[int]) -> list[tuple[int, int]]:
    return [(p, q) for p in some for q in others if _meet(one.ranges[p], other.ranges[q])]


def _meet(one: Iterable[tuple[int, int]], other: Iterable[tuple[int, int]]) -> bool:
    return any(low <= top and bottom <= high for low, high in one for bottom, top in other)
