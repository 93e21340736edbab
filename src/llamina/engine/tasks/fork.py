"""Sequences that leave the way they were on: forks and rewinds."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from llamina.engine.schedule import requeue
from llamina.engine.sequence import Sequence
from llamina.engine.speculation.shared_prefix import common
from llamina.sampling import Sampling

if TYPE_CHECKING:
    from llamina.engine.core import Core


def fork(core: "Core", sequence: Sequence, sampling: Sampling | None = None) -> Sequence:
    """A second sequence that goes on from where this one is; they share pages until they differ."""
    core.withdraw()
    core.limits.check_fork(sequence)
    twin = sequence.fork(sequence.request if sampling is None else replace(sequence.request, sampling=sampling))
    core.equip(twin)
    core.join(twin)
    if sampling is None and sequence.sampler is not None and twin.sampler is not None:
        twin.sampler.restore(sequence.sampler.state())
    core.place(twin, core.pages.fork(sequence.lease) if sequence.lease else None, sequence.computed)
    return twin


def rewind(core: "Core", sequence: Sequence, n: int, tokens: Iterable[int]) -> None:
    """Put `tokens` in the place of the last n that a sequence generated; one that was done is taken up again."""
    core.withdraw()
    tokens = list(tokens)
    core.limits.check_tokens(tokens, "tokens")
    core.limits.check_rewind(sequence, n, len(tokens))
    core.runner.adapters.equip(sequence)  # they may have been unloaded since it was done
    if sequence.sampler is not None and sequence.sampler.constraint is not None:
        sequence.sampler.constraint.restart([*sequence.generated[: len(sequence.generated) - n], *tokens])
    kept = len(sequence.known) - n
    sequence.known[kept:] = tokens
    sequence.output.rewind(n)
    sequence.logprobs.rewind(n, len(tokens))
    for token in tokens:
        sequence.output.push(token)
    if sequence.finish_reason is not None:
        sequence.finish_reason, sequence.done = None, False
        core.place(sequence, None, 0)
    elif sequence.lease is not None:
        _retreat(core, sequence, min(kept, len(sequence.known) - 1))


def revise(core: "Core", sequence: Sequence, known: list[int]) -> None:
    """Go on as if it had known these tokens; what they have in common with those it knows stays computed."""
    core.withdraw()
    same = common(sequence.known, known)
    sequence.known[same:] = known[same:]
    if sequence.lease is not None:
        _retreat(core, sequence, min(same, len(known) - 1))


def _retreat(core: "Core", sequence: Sequence, computed: int) -> None:
    """Compute again what comes after so many tokens. Recurrent states, and what sliding windows do not see any more,
    can only go back to where they were kept."""
    assert sequence.lease is not None
    if computed >= sequence.computed:
        return
    if core.pages.recurrent or not core.pages.rewind(sequence.lease, computed):
        requeue(sequence, core.running, core.waiting, core.pages)
    else:
        sequence.computed = computed
