"""Requests that leave the way they were on: forks and rewinds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llamina.engine.request import Request
from llamina.engine.schedule import requeue
from llamina.engine.speculation import common
from llamina.sampling import Sampling

if TYPE_CHECKING:
    from llamina.engine.core import Core


def fork(engine: "Core", request: Request, sampling: Sampling | None = None) -> Request:
    """A second request that goes on from where this one is; they share pages until they differ."""
    engine.limits.check_fork(request)
    twin = request.fork(sampling)
    engine.begin(twin)
    if sampling is None and request.sampler is not None and twin.sampler is not None:
        twin.sampler.restore(request.sampler.state())
    engine.place(twin, engine.pages.fork(request.lease) if request.lease else None, request.computed)
    return twin


def rewind(engine: "Core", request: Request, n: int, tokens: Sequence[int]) -> None:
    """Put `tokens` in the place of the last n that a request made; one that was done is taken up again."""
    engine.limits.check_tokens(tokens, "tokens")
    engine.limits.check_rewind(request, n, len(tokens))
    engine.adapters.equip(request)  # they may have been unloaded since it was done
    if request.sampler is not None and request.sampler.constraint is not None:
        request.sampler.constraint.restart([*request.generated[: len(request.generated) - n], *tokens])
    kept = len(request.known) - n
    request.known[kept:] = tokens
    request.output.rewind(n)
    request.scores.rewind(n, len(tokens))
    for token in tokens:
        request.output.push(token)
    if request.finish_reason is not None:
        request.finish_reason = None
        engine.place(request, None, 0)
    elif request.lease is not None:
        _retreat(engine, request, min(kept, len(request.known) - 1))


def revise(engine: "Core", request: Request, known: Sequence[int]) -> None:
    """Go on as if it had known these tokens; what they have in common with those it knows stays computed."""
    same = common(request.known, known)
    request.known[same:] = known[same:]
    if request.lease is not None:
        _retreat(engine, request, min(same, len(known) - 1))


def _retreat(engine: "Core", request: Request, computed: int) -> None:
    """What comes after so many tokens is to be computed again; recurrent states, and what windows do not see any more,
    only go back to where they were kept."""
    assert request.lease is not None
    if computed >= request.computed:
        return
    if engine.pages.recurrent or not engine.pages.rewind(request.lease, computed):
        requeue(request, engine.running, engine.waiting, engine.pages)
    else:
        request.computed = computed
