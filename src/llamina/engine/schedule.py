"""Who computes what in the next step. Pure bookkeeping over integers: no arrays, no clock, no model.

There is no prefill and no decode: every sequence's `computed` catches up with its `known` tokens.
"""

from bisect import insort_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from llamina.cache import Pages
from llamina.engine.sequence import Sequence
from llamina.ops.batch import PAGE

Reclaim = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a step may hold."""

    tokens: int
    outputs: int
    sequences: int
    whole: bool = False  # a sequence is computed in one step, for its tokens see each other both ways
    beside: int | None = None  # the most tokens of a step in which somebody generates (chunked prefill); None: all


class Slice(NamedTuple):
    """Tokens [start, stop) of a sequence, computed in this step; the last `drafts` of them are guesses."""

    sequence: Sequence
    start: int
    stop: int
    outputs: range  # offsets into the slice whose outputs are wanted; of guesses too
    drafts: int = 0

    @property
    def caught_up(self) -> bool:
        return self.stop - self.drafts == len(self.sequence.known)


def schedule(
    running: list[Sequence], waiting: list[Sequence], pages: Pages, budget: Budget, reclaim: Reclaim = lambda: False
) -> list[Slice]:
    """Slices for the next step; sequences move between the two lists, which are kept in the order of rank.

    Sequences with one token to compute come first, so that nobody's generation waits for another's prompt; with them
    go their drafts, where there is room. What the step has left goes to prompts. A sequence that lacks pages takes them
    from the lowest in rank, which waits to be computed again; nobody overtakes a sequence that waits with a better
    rank. Before that, `reclaim` is called as long as it returns that pages were given back.
    """
    step = _Step(running, waiting, pages, budget, reclaim)
    while (first := next((r for r in waiting if not r.held), None)) is not None and step.admit(first):
        pass
    for sequence in [r for r in running if r.pending == 1]:
        step.grant(sequence, 1)
    step.grant_drafts()
    step.grant_prompts()
    return list(step.slices.values())


@dataclass(slots=True)
class _Step:
    """The step being put together."""

    running: list[Sequence]
    waiting: list[Sequence]
    pages: Pages
    budget: Budget
    reclaim: Reclaim
    slices: dict[Sequence, Slice] = field(default_factory=dict)
    tokens_left: int = field(init=False)
    outputs_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens_left, self.outputs_left = self.budget.tokens, self.budget.outputs

    def _cut(self, sequence: Sequence, start: int, stop: int, drafts: int = 0) -> None:
        """The slice of a sequence, in the place of the one it had."""
        self._return(sequence)
        wanted = sequence.wanted
        outputs = overlap(range(wanted.start, wanted.stop + drafts), start, stop)
        self.slices[sequence] = Slice(sequence, start, stop, outputs, drafts)
        self.tokens_left -= stop - start
        self.outputs_left -= len(outputs)

    def _return(self, sequence: Sequence) -> None:
        """What its slice has of the budget."""
        if (s := self.slices.get(sequence)) is not None:
            self.tokens_left += s.stop - s.start
            self.outputs_left += len(s.outputs)

    def grant_drafts(self) -> None:
        """Drafts take no pages from others, and leave an output for each prompt."""
        for sequence, s in self.slices.items():
            outputs = self.outputs_left - (len(self.running) - len(self.slices))
            n = min(len(sequence.drafting.tokens), self.tokens_left, outputs)
            assert sequence.lease is not None
            if n > 0 and s.caught_up and self.pages.extend(sequence.lease, s.start, s.stop + n):
                self._cut(sequence, s.start, s.stop + n, n)

    def grant_prompts(self) -> None:
        """Each prompt gets half of what is left, or more where those behind it cannot use as much."""
        if self.slices and self.budget.beside is not None:
            self.tokens_left = max(0, self.tokens_left - self.budget.tokens + self.budget.beside)
        prompts = [r for r in self.running if r not in self.slices]
        behind = sum(r.pending for r in prompts)
        for sequence in prompts:
            behind -= sequence.pending
            left = self.tokens_left
            self.grant(sequence, max(min(PAGE, left), left // 2, left - behind))

    def grant(self, sequence: Sequence, tokens: int) -> None:
        """Up to so many tokens for a running sequence, at the cost of those lower in rank if it must be."""
        n = self._limit(sequence, tokens)
        while sequence in self.running and n > 0:
            assert sequence.lease is not None
            start, known = sequence.computed, sequence.length
            stop = self.pages.stop(sequence.lease, start, start + n, known)
            if sequence.layout is not None:
                stop = sequence.layout.uncut(start, stop, start + min(sequence.pending, self.tokens_left))
                if stop == start:  # rows that must stay together wait for a step with room for all
                    return
            if self.pages.extend(sequence.lease, start, stop):
                self._cut(sequence, start, stop)
                return
            if not self.reclaim():
                self._preempt(self.running[-1])

    def _limit(self, sequence: Sequence, tokens: int) -> int:
        n, start = min(sequence.pending, tokens, self.tokens_left), sequence.computed
        if self.budget.whole:
            fits = sequence.pending <= self.tokens_left and len(sequence.wanted) <= self.outputs_left
            return sequence.pending if fits else 0
        if n <= self.outputs_left or len(overlap(sequence.wanted, start, start + n)) <= self.outputs_left:
            return n
        return max(sequence.wanted.start - start, 0) + self.outputs_left  # the rest waits for a step that can give them

    def admit(self, sequence: Sequence) -> bool:
        """Let a waiting sequence run if all its known tokens find room; those lower in rank make room for it."""
        while not self._seat(sequence):
            if len(self.running) < self.budget.sequences and self.reclaim():
                continue
            if not self.running or self.running[-1].rank <= sequence.rank:
                return False
            self._preempt(self.running[-1])
        return True

    def _seat(self, sequence: Sequence) -> bool:
        if len(self.running) >= self.budget.sequences:
            return False
        promised = sum(_pages_ahead(r) for r in self.running)
        lease = self.pages.admit(
            sequence.known, sequence.scope, sequence.wanted.start + 1 >= len(sequence.known), promised
        )
        if lease is None:
            return False
        sequence.lease, sequence.computed = lease, lease.found
        if sequence.cached is None:  # not again when it was preempted
            sequence.cached = lease.found
        self.waiting.remove(sequence)
        insort_left(self.running, sequence, key=_rank)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._return(sequence)
        self.slices.pop(sequence, None)
        requeue(sequence, self.running, self.waiting, self.pages)


def requeue(sequence: Sequence, running: list[Sequence], waiting: list[Sequence], pages: Pages) -> None:
    """Its pages go back to the pool; it will be computed again from its known tokens."""
    assert sequence.lease is not None
    pages.release(sequence.lease)
    sequence.lease, sequence.computed, sequence.ahead = None, 0, 0
    sequence.rows.clear()
    running.remove(sequence)
    insort_left(waiting, sequence, key=_rank)


def overlap(wanted: range, start: int, stop: int) -> range:
    """What [start, stop) has of the wanted positions, as offsets from `start`."""
    first = max(wanted.start - start, 0)
    return range(first, max(min(wanted.stop, stop) - start, first))


def _rank(sequence: Sequence) -> int:
    return sequence.rank


def _pages_ahead(sequence: Sequence) -> int:
    """How many more pages its tokens need."""
    assert sequence.lease is not None
    return max(0, -(-sequence.length // PAGE) - len(sequence.lease.pages))
