"""A request from its submission to its last token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llamina.cache import Lease
from llamina.engine.stops import StopStrings
from llamina.errors import RequestError
from llamina.sampling import LogitsProcessor, Sampler, Sampling
from llamina.tokenizer import Detokenizer

FinishReason = Literal["stop", "length", "cancelled", "error"]
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
    logits_processor: LogitsProcessor | None = None  # (tokens so far, logits) → logits, before everything else

    def __post_init__(self) -> None:
        limit = self.max_tokens
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise RequestError(f"max_tokens is {limit!r}: a whole number of at least 1 is expected", "max_tokens")
        if not len(self.prompt):
            raise RequestError("the prompt is empty: at least one token is needed to continue from", "prompt")
        if not isinstance(self.priority, int) or isinstance(self.priority, bool):
            raise RequestError(f"priority is {self.priority!r}: a whole number is expected", "priority")
        if self.logits_processor is not None and not callable(self.logits_processor):
            message = f"logits_processor is {self.logits_processor!r}: a function of tokens and logits is expected"
            raise RequestError(message, "logits_processor")
        self.id = next(_numbers)
        self.rank = self.id  # the engine's order of service, smaller first
        self.known: list[int] = [int(t) for t in self.prompt]
        self.computed = 0
        self.lease: Lease | None = None
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None  # why it ended, if nothing could be drawn
        self.pieces: list[str] = []  # text, in the order it was made
        self.rows: list[npt.NDArray[np.float32]] = []  # logits, where all are wanted
        self.stops = StopStrings(self.stop)
        self.detokenizer: Detokenizer | None = None
        self.sampler: Sampler | None = None

    @property
    def generated(self) -> list[int]:
        return self.known[len(self.prompt) :]

    @property
    def pending(self) -> int:
        """Known tokens that are not in the cache yet."""
        return len(self.known) - self.computed

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """The next token; `logits` is used up."""
        assert self.sampler is not None
        return self.sampler.sample(logits, self.known)


@dataclass(frozen=True, slots=True)
class Event:
    """What a step did for a request: a token if one was made, the text it completed, whether it is done."""

    request: Request
    token: int | None = None
    text: str = ""
    finish_reason: FinishReason | None = None


OPTIONS = Request.__dataclass_fields__.keys() - {"prompt", "sampling", "all_logits"}


def request_of(prompt: Sequence[int], **options: Any) -> Request:
    """A request from options by name: those of the request itself, and those of its sampling."""
    unknown = options.keys() - OPTIONS - Sampling.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join([*sorted(OPTIONS), *Sampling.__dataclass_fields__])
        raise RequestError(f"unknown option {', '.join(sorted(unknown))}: known are {known}", sorted(unknown)[0])
    own = {name: value for name, value in options.items() if name in OPTIONS}
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    return Request(prompt, Sampling(**rest), **own)
