"""Drafts by a smaller model with the same vocabulary."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from llamina.engine.branch import revise
from llamina.engine.request import Request
from llamina.errors import LlaminaError

if TYPE_CHECKING:
    from llamina.engine.core import Core

SAME = ("cache_salt", "index", "grammar", "json_schema", "regex", "choices", "lark", "triggers", "markers")


class Drafter:
    """For each request of the larger model a twin in the engine of the smaller one.

    A twin draws with the same numbers at the same positions, so where the two models agree it draws the same.
    """

    def __init__(self, core: "Core", vocab: int) -> None:
        self._core = core
        self._vocab = vocab
        self._twins: dict[Request, Request] = {}

    @property
    def seconds(self) -> float:
        """What a drafted token costs."""
        costs = self._core.costs
        return costs.seconds(max(1, len(self._twins))) / max(1, len(self._twins)) if costs else 0.0

    def draft(self, wanted: Mapping[Request, int]) -> dict[Request, list[int]]:
        """So many tokens for each request, or fewer where the smaller model has no room for them."""
        for request in [r for r in self._twins if r.finish_reason is not None or (wanted and r not in wanted)]:
            self._core.cancel(self._twins.pop(request))
        for request in wanted:
            self._follow(request)
        lengths = {self._twins[r]: len(r.known) + n for r, n in wanted.items() if r in self._twins}
        working = bool(lengths)
        while working:
            self._core.step()
            working = any(t.lease is not None and len(t.known) < length for t, length in lengths.items())
        return {r: self._cut(self._twins[r].known[len(r.known) :][:n]) for r, n in wanted.items() if r in self._twins}

    def _follow(self, request: Request) -> None:
        """Have a twin that knows what the request knows, and stands where it does in its grammar."""
        twin = self._twins.pop(request, None)
        if twin is not None and twin.finish_reason is None:
            revise(self._core, twin, request.known)
        else:
            twin = self._new(request)
        if twin is not None:
            self._twins[request] = twin
            twin.dropped = request.dropped
            if twin.sampler is not None and twin.sampler.constraint is not None:
                twin.sampler.constraint.restart(request.generated)

    def _new(self, request: Request) -> Request | None:
        """None where the smaller model cannot take the tokens: too many, or some that it does not have."""
        assert request.sampler is not None
        sampling, vocab = request.sampling, self._core.plan.vocab
        sampling = replace(
            sampling,
            seed=request.sampler.random.seed,
            logit_bias={t: bias for t, bias in sampling.logit_bias.items() if t < vocab},
            banned_tokens=[t for t in sampling.banned_tokens if t < vocab],
        )
        same = {name: getattr(request, name) for name in SAME}
        twin = Request(request.known, sampling, ignore_eos=request.source is None, speculate="off", **same)
        try:
            return self._core.submit(twin)
        except LlaminaError:
            return None

    def _cut(self, tokens: list[int]) -> list[int]:
        """As far as the larger model has them."""
        return list(takewhile(lambda token: token < self._vocab, tokens))

    def close(self) -> None:
        self._core.close()
