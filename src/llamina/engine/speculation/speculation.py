"""Tokens guessed ahead and verified in one step. A guess is kept if it is what would have been drawn anyway.

Draws depend on the seed and the position alone, and logits not on what else is in a batch, so an answer is the same
token for token with and without speculation, however it is sampled.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from llamina.engine.request import Request
from llamina.engine.schedule import Slice
from llamina.engine.sequence import Sequence
from llamina.engine.speculation.draft_length import worthwhile
from llamina.engine.speculation.prompt_lookup import LONGEST
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine.core import Core
    from llamina.engine.speculation.drafter import Drafter

RECURRENT = "the model's recurrent states are costly to take back; it can be asked for"
NO_DRAFTER = "no draft model is loaded"
EMBEDDED = "the prompt has rows in the place of tokens"


class Speculation:
    """Drafts for the requests of one engine, by looking tokens up and, if there is one, by a smaller model."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.drafter: Drafter | None = None
        self._before: dict[int, npt.NDArray[np.uint8]] = {}  # recurrent states by slot, to go back to

    def check(self, request: Request) -> None:
        """Raise RequestError for a request that wants a draft model where there is none."""
        if request.speculate == "draft" and self.drafter is None:
            raise RequestError("speculate is draft and no draft model is loaded: load one with draft=", "speculate")
        if request.embedded and request.speculate not in ("auto", "off"):
            raise RequestError(f"speculate is {request.speculate!r}, and {EMBEDDED}: it must be off", "speculate")

    def prepare(self, request: Request) -> None:
        """Compile what the draft model needs for a request; for any thread."""
        if self.drafter is not None and request.source is not None:
            self.drafter.prepare(request.source)

    def draft(self) -> None:
        """Decide what to try for each sequence in the next step."""
        core, beside, wanted = self._core, len(self._core.running), {}
        for sequence in core.waiting:
            sequence.drafting.tokens = []
        for sequence in core.running:
            sequence.drafting.tokens = []
            if (
                sequence.pending == 1
                and not sequence.ahead
                and sequence.request.reads is None
                and self._speculates(sequence)
                and len(sequence.wanted) == 1
            ):
                sequence.drafting.learn(sequence.known)
                most = self._most(sequence)
                sequence.drafting.tokens = self._look_up(sequence, beside - 1, most)
                if not sequence.drafting.tokens and (n := self._want(sequence, beside - 1, most)):
                    wanted[sequence] = n
                beside += len(sequence.drafting.tokens) or wanted.get(sequence, 0)
            elif sequence.pending > 1:
                beside += sequence.pending - 1
        self._ask_model(wanted)

    def _speculates(self, sequence: Sequence) -> bool:
        drafting, mode = sequence.drafting, sequence.request.speculate
        if mode == "off":
            drafting.off = "asked to be off"
        elif sequence.request.embedded:
            drafting.off = EMBEDDED
        elif mode == "auto" and self._core.pages.recurrent:
            drafting.off = RECURRENT
        elif mode == "draft" and self.drafter is None:
            drafting.off = NO_DRAFTER
        else:
            drafting.off = ""
        return not drafting.off

    def waits(self, sequence: Sequence) -> bool:
        """Whether it is better to know the token that is being sampled, for there is something to draft behind it."""
        if not self._speculates(sequence):
            return False
        drafting, mode = sequence.drafting, sequence.request.speculate
        if isinstance(mode, int) or (self.drafter is not None and mode != "ngram"):
            return True
        drafting.lookup.follow(sequence.known)
        matched, tokens = drafting.lookup.draft()
        chances = drafting.copied if drafting.lookup.copying else drafting.found
        likely = (chances[n] for n in range(matched, matched + len(tokens)))
        return worthwhile(likely, len(self._core.running) - 1, self._core.costs) > 0

    def _most(self, sequence: Sequence) -> int:
        """Drafts that can be of use: one token comes in any case, and there must be room for all."""
        left = self._core.limits.room - len(sequence.known)
        if sequence.request.max_tokens is not None:
            left = min(left, sequence.request.max_tokens - len(sequence.generated) - 1)
        if isinstance(sequence.request.speculate, int):
            left = min(left, sequence.request.speculate)
        return max(0, min(left, LONGEST))

    def _look_up(self, sequence: Sequence, beside: int, most: int) -> list[int]:
        drafting, mode = sequence.drafting, sequence.request.speculate
        if mode == "draft" or (isinstance(mode, int) and self.drafter):
            return []
        drafting.lookup.follow(sequence.known)
        matched, tokens = drafting.lookup.draft()
        if not tokens:
            return []
        chances = drafting.copied if drafting.lookup.copying else drafting.found
        drafting.propose(chances, matched, len(sequence.known), tokens)
        if isinstance(mode, int):
            return tokens[:most]
        likely = (chances[n] for n in range(matched, matched + most))
        return tokens[: worthwhile(likely, beside, self._core.costs)]

    def _want(self, sequence: Sequence, beside: int, most: int) -> int:
        """How many tokens to ask the smaller model for."""
        drafting, mode = sequence.drafting, sequence.request.speculate
        if self.drafter is None or mode == "ngram":
            return 0
        if isinstance(mode, int):
            return most
        chances = islice(iter(lambda: drafting.model[0], None), most)
        n = worthwhile(chances, beside, self._core.costs, self.drafter.seconds)
        if not n:
            drafting.model.relax()
        return n

    def _ask_model(self, wanted: Mapping[Sequence, int]) -> None:
        if self.drafter is None:
            return
        for sequence, tokens in self.drafter.draft(wanted).items():
            sequence.drafting.tokens = tokens
            sequence.drafting.propose(sequence.drafting.model, 0, len(sequence.known), tokens)

    # ---- verification ------------------------------------------------------------------------------------

    def save(self, slices: Iterable[Slice]) -> None:
        """Remember recurrent states that drafts may spoil."""
        if self._core.pages.recurrent:
            slots = [s.sequence.lease.slot for s in slices if s.drafts and s.sequence.lease]
            self._before = {slot: self._core.runner.program.states.read("slot", [slot]) for slot in slots}

    def settle(self, s: Slice, made: Iterable[int]) -> None:
        """Count what came true, and take back what did not."""
        sequence, core = s.sequence, self._core
        drafted, accepted = sequence.drafting.drafted, sequence.drafting.accepted
        sequence.drafting.verified(sequence.drafting.tokens[: s.drafts], list(made))
        core.metrics.verify(sequence.drafting.drafted - drafted, sequence.drafting.accepted - accepted)
        if sequence.lease is None or sequence.computed == s.stop:
            return
        if core.pages.recurrent:  # back to where the step began: the tokens that came true are computed again
            core.runner.program.states.write("slot", [sequence.lease.slot], self._before[sequence.lease.slot])
            sequence.computed = s.start
        back = core.pages.rewind(sequence.lease, sequence.computed)
        assert back, "drafts are not told to the pages, so windows have not moved on"

    def close(self) -> None:
        if self.drafter is not None:
            self.drafter.close()
