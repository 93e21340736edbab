"""Tokens guessed ahead and verified in one step. A guess is kept if it is what would have been drawn anyway.

Draws depend on the seed and the position alone, and logits not on what else is in a batch, so an answer is the same
token for token with and without speculation, however it is sampled.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llamina.engine.request import Request
from llamina.engine.schedule import Slice
from llamina.engine.speculation.lookup import LONGEST
from llamina.engine.speculation.pace import worthwhile
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine.core import Core
    from llamina.engine.speculation.drafter import Drafter

RECURRENT = "the model's recurrent states are costly to take back; it can be asked for"
NO_DRAFTER = "no draft model is loaded"


class Speculation:
    """Drafts for the requests of one engine, by looking tokens up and, if there is one, by a smaller model."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.drafter: Drafter | None = None
        self._before: dict[int, npt.NDArray[np.uint8]] = {}  # recurrent states by slot, to go back to

    def check(self, request: Request) -> None:
        if request.speculate == "draft" and self.drafter is None:
            raise RequestError("speculate is draft and no draft model is loaded: load one with draft=", "speculate")

    def draft(self) -> None:
        """Decide what to try for each request in the next step."""
        core, beside, wanted = self._core, len(self._core.running), {}
        for request in core.waiting:
            request.drafting.tokens = []
        for request in core.running:
            request.drafting.tokens = []
            if (
                request.pending == 1
                and request.reads is None
                and self._speculates(request)
                and len(request.wanted) == 1
            ):
                request.drafting.learn(request.known)
                most = self._most(request)
                request.drafting.tokens = self._look_up(request, beside - 1, most)
                if not request.drafting.tokens and (n := self._want(request, beside - 1, most)):
                    wanted[request] = n
                beside += len(request.drafting.tokens) or wanted.get(request, 0)
            elif request.pending > 1:
                beside += request.pending - 1
        self._ask_model(wanted)

    def _speculates(self, request: Request) -> bool:
        drafting, mode = request.drafting, request.speculate
        if mode == "off":
            drafting.off = "asked to be off"
        elif mode == "auto" and self._core.pages.recurrent:
            drafting.off = RECURRENT
        elif mode == "draft" and self.drafter is None:
            drafting.off = NO_DRAFTER
        else:
            drafting.off = ""
        return not drafting.off

    def _most(self, request: Request) -> int:
        """Drafts that can be of use: one token comes in any case, and there must be room for all."""
        left = self._core.limits.room - len(request.known)
        if request.max_tokens is not None:
            left = min(left, request.max_tokens - len(request.generated) - 1)
        if isinstance(request.speculate, int):
            left = min(left, request.speculate)
        return max(0, min(left, LONGEST))

    def _look_up(self, request: Request, beside: int, most: int) -> list[int]:
        drafting, mode = request.drafting, request.speculate
        if mode == "draft" or (isinstance(mode, int) and self.drafter):
            return []
        drafting.lookup.follow(request.known)
        matched, tokens = drafting.lookup.draft()
        if not tokens:
            return []
        chances = drafting.copied if drafting.lookup.copying else drafting.found
        drafting.propose(chances, matched, len(request.known), tokens)
        if isinstance(mode, int):
            return tokens[:most]
        likely = (chances[n] for n in range(matched, matched + most))
        return tokens[: worthwhile(likely, beside, self._core.costs)]

    def _want(self, request: Request, beside: int, most: int) -> int:
        """How many tokens to ask the smaller model for."""
        drafting, mode = request.drafting, request.speculate
        if self.drafter is None or mode == "ngram":
            return 0
        if isinstance(mode, int):
            return most
        chances = islice(iter(lambda: drafting.model[0], None), most)
        n = worthwhile(chances, beside, self._core.costs, self.drafter.seconds)
        if not n:
            drafting.model.relax()
        return n

    def _ask_model(self, wanted: Mapping[Request, int]) -> None:
        if self.drafter is None:
            return
        for request, tokens in self.drafter.draft(wanted).items():
            request.drafting.tokens = tokens
            request.drafting.propose(request.drafting.model, 0, len(request.known), tokens)

    # ---- verification ------------------------------------------------------------------------------------

    def save(self, slices: Iterable[Slice]) -> None:
        """Remember recurrent states that drafts may spoil."""
        if self._core.pages.recurrent:
            slots = [s.request.lease.slot for s in slices if s.drafts and s.request.lease]
            self._before = {slot: self._core.program.states.read("slot", [slot]) for slot in slots}

    def settle(self, s: Slice, made: Sequence[int]) -> None:
        """Count what came true, and take back what did not."""
        request, core = s.request, self._core
        request.drafting.verified(request.drafting.tokens[: s.drafts], list(made))
        if request.lease is None or request.computed == s.stop:
            return
        if core.pages.recurrent:  # back to where the step began: the tokens that came true are computed again
            core.program.states.write("slot", [request.lease.slot], self._before[request.lease.slot])
            request.computed = s.start
        back = core.pages.rewind(request.lease, request.computed)
        assert back, "drafts are not told to the pages, so windows have not moved on"

    def close(self) -> None:
        if self.drafter is not None:
            self.drafter.close()
