"""Cuts rules into lexemes: the longest pieces for which longest-match lexing does not change the language.

llguidance lexes by the longest match of any lexeme that may come next, and never backtracks. GBNF has no lexemes:
`[a-z]* "x"` matches "abx". So a piece may be one lexeme only if no lexeme that may stand at its place can continue
with what may follow it. Pieces that fail are cut until all pass; single characters do.
"""

from itertools import groupby

from llamina.grammar.automaton import Automaton, TooLarge, build, goes_on, overlap
from llamina.grammar.follow_sets import FollowSets
from llamina.grammar.nodes import Alt, Chars, Lexeme, Node, Repeat, Rules, Seq, choice, references, sequence
from llamina.grammar.regular import Regular, straighten

MAX_WORK = 500_000  # comparisons of lexemes or positions; beyond, each character becomes a lexeme


def cut(rules: Rules) -> Rules:
    """Return rules of the same language made of `Lexeme`s, without those that `root` does not need."""
    return _Cutter(straighten(rules)).run()


class _Exhausted(Exception):
    """MAX_WORK is used up."""


class _Cutter:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._is_regular = Regular(rules)
        self._cuts: dict[Node, tuple[Node, ...]] = {}  # a piece that failed → its parts
        self._lexemes: dict[Node, Lexeme] = {}
        self._automata: dict[Lexeme, Automaton | None] = {}
        self._passed: set[tuple[Lexeme, Lexeme, frozenset[Lexeme]]] = set()
        self._overlaps: dict[frozenset[Lexeme], bool] = {}
        self._work = 0

    def run(self) -> Rules:
        try:
            while (failed := self._failure(rules := self._pieces_of_rules())) is not None:
                self._cut(*failed)
        except _Exhausted:
            rules = self._pieces_of_rules()  # now made of single characters
        return rules

    # ---- cutting -----------------------------------------------------------------------------------------

    def _pieces_of_rules(self) -> Rules:
        pieces: Rules = {}
        names = ["root"]
        while names:
            name = names.pop()
            if name not in pieces:
                pieces[name] = self._pieces(self.rules[name])
                names += references(pieces[name])
        return pieces

    def _pieces(self, node: Node) -> Node:
        whole = self._work < MAX_WORK and self._is_regular(node) and node not in self._cuts
        if whole or isinstance(node, Chars):
            return self._lexemes.setdefault(node, Lexeme(node, len(self._lexemes)))
        match node:
            case Seq():
                return sequence(map(self._pieces, self._cuts.get(node) or self._runs(node)))
            case Alt(items):
                regular = [item for item in items if self._is_regular(item)]
                if self._is_regular(node) or not regular:
                    return choice(map(self._pieces, items))
                return choice(map(self._pieces, [choice(regular), *(i for i in items if not self._is_regular(i))]))
            case Repeat(item, low, high):
                return Repeat(self._pieces(item), low, high)
        return node

    def _runs(self, node: Seq) -> tuple[Node, ...]:
        """Return the items with consecutive regular ones joined."""
        if self._is_regular(node):
            return node.items
        joined: list[Node] = []
        for regular, group in groupby(node.items, self._is_regular):
            items = list(group)
            joined += [sequence(items)] if regular else items
        return tuple(joined)

    def _cut(self, one: Lexeme, other: Lexeme) -> None:
        """Cut off the end of a piece whose own end is ambiguous; of one that continues past another, the beginning."""
        node = other.node
        if isinstance(node, Seq):
            at = -1 if one == other else 1
            self._cuts[node] = (sequence(node.items[:at]), sequence(node.items[at:]))
        else:
            self._cuts[node] = (node,)

    # ---- checking ----------------------------------------------------------------------------------------

    def _failure(self, rules: Rules) -> tuple[Lexeme, Lexeme] | None:
        """Return a lexeme that may end where another candidate at its place continues, and that other; None: none."""
        follow = FollowSets(rules, self._nullable, self._overlap)
        for candidates in follow.candidates():
            for one in candidates:
                after = frozenset(x for x in follow.after.get(one, ()) if isinstance(x, Lexeme))
                for other in candidates:
                    if not self._passes(one, other, after):
                        return one, other
        return None

    def _passes(self, one: Lexeme, other: Lexeme, after: frozenset[Lexeme]) -> bool:
        self._spend(1)
        if isinstance(other.node, Chars) or (one, other, after) in self._passed:
            return True
        automata = [self._automaton(x) for x in (one, other, *after)]
        try:
            known = [a for a in automata if a is not None]
            next_ranges = [pair for a in known[2:] for pair in a.first_ranges()]
            if len(known) < len(automata) or goes_on(known[0], known[1], next_ranges, self._spend):
                return not after
        except TooLarge:
            return False
        self._passed.add((one, other, after))
        return True

    def _automaton(self, lexeme: Lexeme) -> Automaton | None:
        if lexeme not in self._automata:
            try:
                self._automata[lexeme] = build(lexeme.node, self.rules)
            except TooLarge:
                self._automata[lexeme] = None
        return self._automata[lexeme]

    def _nullable(self, lexeme: Lexeme) -> bool:
        self._spend(1)
        automaton = self._automaton(lexeme)
        return automaton is None or automaton.nullable

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work >= MAX_WORK:
            raise _Exhausted

    def _overlap(self, one: Lexeme, other: Lexeme) -> bool:
        self._spend(1)
        key = frozenset((one, other))
        if key not in self._overlaps:
            first, second = self._automaton(one), self._automaton(other)
            try:
                self._overlaps[key] = first is None or second is None or overlap(first, second, self._spend)
            except TooLarge:
                self._overlaps[key] = True
        return self._overlaps[key]
