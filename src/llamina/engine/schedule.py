"""Who computes what in the next step. Pure bookkeeping over integers: no arrays, no clock, no model.

There is no prefill and no decode: every request's `computed` catches up with its `known` tokens.
"""

from bisect import insort_left
from dataclasses import dataclass, field
from typing import NamedTuple

from llamina.cache import Pages
from llamina.engine.request import Request
from llamina.errors import CapacityError
from llamina.ops.batch import PAGE


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a step may hold."""

    tokens: int
    outputs: int
    sequences: int
    whole: bool = False  # a request is computed in one step, for its tokens see each other both ways


class Slice(NamedTuple):
    """Tokens [start, stop) of a request, computed in this step; the last `drafts` of them are guesses."""

    request: Request
    start: int
    stop: int
    outputs: range  # offsets into the slice whose outputs are wanted; of guesses too
    drafts: int = 0

    @property
    def caught_up(self) -> bool:
        return self.stop - self.drafts == len(self.request.known)


def schedule(running: list[Request], waiting: list[Request], pages: Pages, budget: Budget) -> list[Slice]:
    """Slices for the next step; requests move between the two lists, which are kept in the order of rank.

    Requests with one token to compute come first, so that nobody's generation waits for another's prompt; with them
    go their drafts, where there is room. What the step has left goes to prompts. A request that lacks pages takes them
    from the lowest in rank, which waits to be computed again; nobody overtakes a request that waits with a better
    rank.
    """
    step = _Step(running, waiting, pages, budget)
    while (first := next((r for r in waiting if not r.held), None)) is not None and step.admit(first):
        pass
    for request in [r for r in running if r.pending == 1]:
        step.grant(request, 1)
    step.grant_drafts()
    step.grant_prompts()
    return list(step.slices.values())


@dataclass(slots=True)
class _Step:
    """The step being put together."""

    running: list[Request]
    waiting: list[Request]
    pages: Pages
    budget: Budget
    slices: dict[Request, Slice] = field(default_factory=dict)
    tokens_left: int = field(init=False)
    outputs_left: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens_left, self.outputs_left = self.budget.tokens, self.budget.outputs

    def _cut(self, request: Request, start: int, stop: int, drafts: int = 0) -> None:
        """The slice of a request, in the place of the one it had."""
        self._return(request)
        wanted = request.wanted
        outputs = overlap(range(wanted.start, wanted.stop + drafts), start, stop)
        self.slices[request] = Slice(request, start, stop, outputs, drafts)
        self.tokens_left -= stop - start
        self.outputs_left -= len(outputs)

    def _return(self, request: Request) -> None:
        """What its slice has of the budget."""
        if (s := self.slices.get(request)) is not None:
            self.tokens_left += s.stop - s.start
            self.outputs_left += len(s.outputs)

    def grant_drafts(self) -> None:
        """Drafts take no pages from others, and leave an output for each prompt."""
        for request, s in self.slices.items():
            outputs = self.outputs_left - (len(self.running) - len(self.slices))
            n = min(len(request.drafting.tokens), self.tokens_left, outputs)
            assert request.lease is not None
            if n > 0 and s.caught_up and self.pages.extend(request.lease, s.start, s.stop + n):
                self._cut(request, s.start, s.stop + n, n)

    def grant_prompts(self) -> None:
        """Each prompt gets half of what is left, or more where those behind it cannot use as much."""
        prompts = [r for r in self.running if r not in self.slices]
        behind = sum(r.pending for r in prompts)
        for request in prompts:
            behind -= request.pending
            left = self.tokens_left
            self.grant(request, max(min(PAGE, left), left // 2, left - behind))

    def grant(self, request: Request, tokens: int) -> None:
        """Up to so many tokens for a running request, at the cost of those lower in rank if it must be."""
        self._check_fit(request)
        n = self._limit(request, tokens)
        while request in self.running and n > 0:
            assert request.lease is not None
            start, known = request.computed, len(request.known)
            stop = self.pages.stop(request.lease, start, start + n, known)
            if self.pages.extend(request.lease, start, stop):
                self._cut(request, start, stop)
                return
            self._preempt(self.running[-1])

    def _limit(self, request: Request, tokens: int) -> int:
        n, start = min(request.pending, tokens, self.tokens_left), request.computed
        if self.budget.whole:
            fits = request.pending <= self.tokens_left and len(request.wanted) <= self.outputs_left
            return request.pending if fits else 0
        if n <= self.outputs_left or len(overlap(request.wanted, start, start + n)) <= self.outputs_left:
            return n
        return max(request.wanted.start - start, 0) + self.outputs_left  # the rest waits for a step that can give them

    def _check_fit(self, request: Request) -> None:
        if not self.pages.holds(len(request.known)):  # preempting others, or itself, would go on for ever
            raise CapacityError(
                f"a sequence of {len(request.known)} tokens does not fit the {self.pages.total} pages of the cache: "
                "load the model with more cache_tokens"
            )

    def admit(self, request: Request) -> bool:
        """Let a waiting request run if all its known tokens find room; those lower in rank make room for it."""
        self._check_fit(request)
        while not self._seat(request):
            if not self.running or self.running[-1].rank <= request.rank:
                return False
            self._preempt(self.running[-1])
        return True

    def _seat(self, request: Request) -> bool:
        if len(self.running) >= self.budget.sequences:
            return False
        promised = sum(_pages_ahead(r) for r in self.running)
        lease = self.pages.admit(request.known, request.scope, request.wanted.start + 1 >= len(request.known), promised)
        if lease is None:
            return False
        request.lease, request.computed = lease, lease.found
        if request.cached is None:  # not again when it was preempted
            request.cached = lease.found
        self.waiting.remove(request)
        insort_left(self.running, request, key=_rank)
        return True

    def _preempt(self, request: Request) -> None:
        self._return(request)
        self.slices.pop(request, None)
        requeue(request, self.running, self.waiting, self.pages)


def requeue(request: Request, running: list[Request], waiting: list[Request], pages: Pages) -> None:
    """Its pages go back to the pool; it will be computed again from its known tokens."""
    assert request.lease is not None
    pages.release(request.lease)
    request.lease, request.computed = None, 0
    request.rows.clear()
    running.remove(request)
    insort_left(waiting, request, key=_rank)


def overlap(wanted: range, start: int, stop: int) -> range:
    """What [start, stop) has of the wanted positions, as offsets from `start`."""
    first = max(wanted.start - start, 0)
    return range(first, max(min(wanted.stop, stop) - start, first))


def _rank(request: Request) -> int:
    return request.rank


def _pages_ahead(request: Request) -> int:
    """How many more pages its known tokens need."""
    assert request.lease is not None
    return max(0, -(-len(request.known) // PAGE) - len(request.lease.pages))
