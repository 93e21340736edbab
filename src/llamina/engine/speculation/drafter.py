"""Drafts by a smaller model with the same vocabulary."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from llamina.engine.request import Request
from llamina.engine.sequence import Sequence
from llamina.engine.tasks.fork import revise
from llamina.errors import LlaminaError
from llamina.grammar import Source

if TYPE_CHECKING:
    from llamina.engine.core import Core

SAME = ("cache_salt", "index", "grammar", "json_schema", "regex", "choices", "lark", "triggers", "markers", "bad_words")


class Drafter:
    """For each sequence of the larger model a twin in the engine of the smaller one.

    A twin draws with the same numbers at the same positions, so where the two models agree it draws the same.
    """

    def __init__(self, core: "Core", vocab: int) -> None:
        self._core = core
        self._vocab = vocab
        self._twins: dict[Sequence, Sequence] = {}

    @property
    def seconds(self) -> float:
        """What a drafted token costs."""
        costs = self._core.costs
        return costs.seconds(max(1, len(self._twins))) / max(1, len(self._twins)) if costs else 0.0

    def draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, list[int]]:
        """So many tokens for each sequence, or fewer where the smaller model has no room for them."""
        for sequence in [r for r in self._twins if r.finish_reason is not None or (wanted and r not in wanted)]:
            self._core.cancel(self._twins.pop(sequence))
        for sequence in wanted:
            self._follow(sequence)
        lengths = {self._twins[r]: len(r.known) + n for r, n in wanted.items() if r in self._twins}
        working = bool(lengths)
        while working:
            self._core.step()
            working = any(t.lease is not None and len(t.known) < length for t, length in lengths.items())
        return {r: self._cut(self._twins[r].known[len(r.known) :][:n]) for r, n in wanted.items() if r in self._twins}

    def _follow(self, sequence: Sequence) -> None:
        """Have a twin that knows what the sequence knows, and stands where it does in its grammar."""
        twin = self._twins.pop(sequence, None)
        if twin is not None and twin.finish_reason is None:
            revise(self._core, twin, sequence.known)
        else:
            twin = self._new(sequence)
        if twin is not None:
            self._twins[sequence] = twin
            twin.dropped = sequence.dropped
            if twin.sampler is not None and twin.sampler.constraint is not None:
                twin.sampler.constraint.restart(sequence.generated)

    def _new(self, sequence: Sequence) -> Sequence | None:
        """None where the smaller model cannot take the tokens: too many, or some that it does not have."""
        assert sequence.sampler is not None
        request, vocab = sequence.request, self._core.runner.plan.vocab
        sampling = replace(
            request.sampling,
            seed=sequence.sampler.random.seed,
            logit_bias={t: bias for t, bias in request.sampling.logit_bias.items() if t < vocab},
            banned_tokens=[t for t in request.sampling.banned_tokens if t < vocab],
        )
        same = {name: getattr(request, name) for name in SAME}
        twin = Request(sequence.known, sampling, ignore_eos=request.source is None, speculate="off", **same)
        try:
            return self._core.submit(twin)
        except LlaminaError:
            return None

    def _cut(self, tokens: list[int]) -> list[int]:
        """As far as the larger model has them."""
        return list(takewhile(lambda token: token < self._vocab, tokens))

    def prepare(self, source: Source) -> None:
        """Compile a grammar for the draft model; for any thread. With one that it cannot follow it drafts nothing."""
        with suppress(LlaminaError):
            self._core.runner.samplers.check(source)

    def close(self) -> None:
        self._core.close()
