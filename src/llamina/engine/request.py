"""A request from its submission to its last token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

from llamina.cache import Lease
from llamina.engine.stops import StopStrings
from llamina.errors import RequestError
from llamina.sampling import Sampling, chain, draw
from llamina.tokenizer import Detokenizer

FinishReason = Literal["stop", "length", "cancelled"]
_numbers = count()


@dataclass(eq=False)
class Request:
    """`known` are the tokens so far, the first `computed` of them in the cache: work is the difference."""

    prompt: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None  # None: until the context is full
    stop: Sequence[str] = ()
    all_logits: bool = False  # outputs for every prompt token, and no sampling
    ignore_eos: bool = False  # go on after a token that ends a generation
    priority: int = 0  # each level is worth a head start of some earlier requests; below 0, later ones go first

    def __post_init__(self) -> None:
        limit = self.max_tokens
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise RequestError(f"max_tokens is {limit!r}: a whole number of at least 1 is expected", "max_tokens")
        if not len(self.prompt):
            raise RequestError("the prompt is empty: at least one token is needed to continue from", "prompt")
        if not isinstance(self.priority, int) or isinstance(self.priority, bool):
            raise RequestError(f"priority is {self.priority!r}: a whole number is expected", "priority")
        self.id = next(_numbers)
        self.rank = self.id  # the engine's order of service, smaller first
        self.known: list[int] = [int(t) for t in self.prompt]
        self.computed = 0
        self.lease: Lease | None = None
        self.finish_reason: FinishReason | None = None
        self.pieces: list[str] = []  # text, in the order it was made
        self.rows: list[npt.NDArray[np.float32]] = []  # logits, where all are wanted
        self.stops = StopStrings(self.stop)
        self.detokenizer: Detokenizer | None = None
        self._stages = chain(self.sampling)
        self._rng = np.random.Generator(np.random.Philox(self.sampling.seed))

    @property
    def generated(self) -> list[int]:
        return self.known[len(self.prompt) :]

    @property
    def pending(self) -> int:
        """Known tokens that are not in the cache yet."""
        return len(self.known) - self.computed

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        return draw(logits, self.sampling, self._stages, self.known, self._rng)


@dataclass(frozen=True, slots=True)
class Event:
    """What a step did for a request: a token if one was made, the text it completed, whether it is done."""

    request: Request
    token: int | None = None
    text: str = ""
    finish_reason: FinishReason | None = None
