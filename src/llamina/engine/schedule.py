"""Who computes what in the next step. Pure bookkeeping over integers: no arrays, no clock, no model.

There is no prefill and no decode: every request's `computed` catches up with its `known` tokens.
"""

from dataclasses import dataclass

from llamina.cache import Pages
from llamina.engine.request import Request
from llamina.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a step may hold."""

    tokens: int
    outputs: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Tokens [start, stop) of a request, computed in this step."""

    request: Request
    start: int
    stop: int

    @property
    def caught_up(self) -> bool:
        return self.stop == len(self.request.known)

    @property
    def outputs(self) -> range:
        """Offsets into the slice whose logits are wanted."""
        n = self.stop - self.start
        if self.request.all_logits:
            return range(n)
        return range(n - 1, n) if self.caught_up else range(0)


def schedule(running: list[Request], waiting: list[Request], pages: Pages, budget: Budget) -> list[Slice]:
    """Slices for the running requests, oldest first, then for as many waiting ones as fit.

    When pages run out the youngest running request gives its pages back and waits to be computed again.
    """
    slices: list[Slice] = []
    for request in list(running):
        if request in running:  # an older one may have preempted it
            _grant(request, slices, running, waiting, pages, budget)
    while waiting and len(slices) < budget.sequences and _tokens(slices) < budget.tokens:
        if (lease := pages.admit()) is None:
            break
        request = waiting.pop(0)
        request.lease = lease
        running.append(request)
        before = len(slices)
        if not _take(request, slices, pages, budget):
            _preempt(request, running, waiting, pages)
            break
        if len(slices) == before:
            break
    return slices


def _grant(
    request: Request, slices: list[Slice], running: list[Request], waiting: list[Request], pages: Pages, budget: Budget
) -> None:
    """A slice for a running request, at the cost of younger ones if it must be."""
    while not _take(request, slices, pages, budget):
        youngest = next(r for r in reversed(running) if r not in [s.request for s in slices])
        _preempt(youngest, running, waiting, pages)
        if youngest is request:
            return


def _take(request: Request, slices: list[Slice], pages: Pages, budget: Budget) -> bool:
    """Append the request's slice if the step has room; False only when pages are lacking."""
    if not pages.holds(len(request.known)):  # preempting others, or itself, would go on for ever
        raise CapacityError(
            f"a sequence of {len(request.known)} tokens does not fit the {pages.total} pages of the cache: "
            "load the model with more cache_tokens"
        )
    n = min(request.pending, budget.tokens - _tokens(slices))
    outputs = budget.outputs - sum(len(s.outputs) for s in slices)
    if request.all_logits:
        n = min(n, outputs)
    elif not outputs and n == request.pending:
        n -= 1  # its last token waits for a step that can give its logits
    if n <= 0 or len(slices) >= budget.sequences:
        return True
    assert request.lease is not None
    if not pages.extend(request.lease, request.computed + n):
        return False
    slices.append(Slice(request, request.computed, request.computed + n))
    return True


def _preempt(request: Request, running: list[Request], waiting: list[Request], pages: Pages) -> None:
    """Its pages go back to the pool; it will be computed again from its known tokens."""
    assert request.lease is not None
    pages.release(request.lease)
    request.lease, request.computed = None, 0
    running.remove(request)
    waiting.insert(0, request)


def _tokens(slices: list[Slice]) -> int:
    return sum(s.stop - s.start for s in slices)
