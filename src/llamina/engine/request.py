"""A request from its submission to its last token."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from llamina.cache import Lease
from llamina.engine.output import Output
from llamina.engine.scores import Scores
from llamina.engine.speculation import Drafting, Speculate, check_mode
from llamina.errors import RequestError
from llamina.grammar import Triggers, source
from llamina.ops.batch import Applied
from llamina.sampling import LogitsProcessor, Sampler, Sampling, TokenLogprob, logprob_of

FinishReason = Literal["stop", "length", "cancelled", "error"]
Reading = Literal["logits", "logprobs", "hidden", "rank"]
_numbers = count()


@dataclass(slots=True)
class Times:
    """When things happened to a request, in seconds of a clock that only counts."""

    submitted: float = 0.0
    started: float | None = None  # computing
    first: float | None = None  # token
    last: float | None = None


@dataclass(eq=False)
class Request:
    """`known` are the tokens so far, the first `computed` of them in the cache: work is the difference."""

    prompt: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None  # None: until the context is full
    stop: Sequence[str] = ()
    markers: Sequence[str] = ()  # control tokens, by name, that are part of the text
    all_logits: bool = False  # logits for every prompt token, and no sampling: short for `reads`
    ignore_eos: bool = False  # go on after a token that ends a generation
    priority: int = 0  # each level is worth a head start of some earlier requests; below 0, later ones go first
    logits_processor: LogitsProcessor | None = None  # (tokens so far, logits) → logits, before everything else
    cache_prompt: bool = True  # begin with what others have computed, and leave one's own work to others
    cache_salt: str = ""  # work is shared only between requests with the same salt
    truncate: bool = False  # drop old tokens of a prompt that is too long
    context_shift: bool = False  # drop old tokens when the context is full, and go on
    logprobs: int | None = None  # how likely each token was, and so many of the likeliest; None: not told
    prompt_logprobs: int | None = None  # the same of the prompt's tokens
    index: int = 0  # of several answers to a prompt, which: each draws for itself
    leader: "Request | None" = None  # computes the same prompt; this one waits for that
    grammar: str | None = None  # GBNF that the answer follows; of these five, one at most
    json_schema: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choices: Sequence[str] | None = None
    lark: str | None = None
    triggers: Triggers | None = None  # the answer is free until one of these texts; None: all of it follows the grammar
    on_event: Callable[["Event"], None] | None = None  # told what each step did for it; may cancel it
    n_keep: int = 0  # the first tokens that are never dropped; BOS is not dropped in any case
    adapters: Mapping[str, float] = field(default_factory=dict)  # names of loaded ones and their scales, added in order
    speculate: Speculate = "auto"  # "ngram", "draft", "off", or how many tokens to guess ahead in every step
    reads: range | None = None  # positions whose outputs are kept in `rows`, and no sampling
    reading: Reading = "logits"  # logits, the next token's log-probability, hidden states, or a classifier's scores

    def __post_init__(self) -> None:
        limit = self.max_tokens
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
            raise RequestError(f"max_tokens is {limit!r}: a whole number of at least 1 is expected", "max_tokens")
        if not len(self.prompt):
            raise RequestError("the prompt is empty: at least one token is needed to continue from", "prompt")
        if not isinstance(self.priority, int) or isinstance(self.priority, bool):
            raise RequestError(f"priority is {self.priority!r}: a whole number is expected", "priority")
        if not isinstance(self.n_keep, int) or isinstance(self.n_keep, bool) or self.n_keep < 0:
            raise RequestError(f"n_keep is {self.n_keep!r}: a whole number of at least 0 is expected", "n_keep")
        for name, of in (("logits_processor", "tokens and logits"), ("on_event", "an event")):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise RequestError(f"{name} is {given!r}: a function of {of} is expected", name)
        if self.truncate and self.prompt_logprobs is not None:
            message = "prompt_logprobs are asked for with truncate: they belong to a prompt that is taken whole"
            raise RequestError(message, "prompt_logprobs")
        if not isinstance(self.index, int) or isinstance(self.index, bool) or not 0 <= self.index < 1 << 64:
            raise RequestError(f"index is {self.index!r}: a whole number of at least 0 is expected", "index")
        self.source = source(self.grammar, self.json_schema, self.regex, self.choices, self.lark)
        if self.triggers is not None and self.source is None:
            raise RequestError("triggers are given without a grammar: say what they begin", "triggers")
        if self.source is not None and self.ignore_eos and self.triggers is None:
            message = f"ignore_eos is given with {self.source.kind}: an answer that follows it must be able to end"
            raise RequestError(message, "ignore_eos")
        _check_scales(self.adapters)
        self.adapters = dict(self.adapters)
        check_mode(self.speculate)
        if self.all_logits:
            self.reads = range(len(self.prompt))
        if self.reads is not None and (self.truncate or self.context_shift):
            raise RequestError("outputs are read of the tokens as they are: none can be dropped", "truncate")
        self.id = next(_numbers)
        self.rank = self.id  # the engine's order of service, smaller first
        self.known: list[int] = [int(t) for t in self.prompt]
        self.computed = 0
        self.lease: Lease | None = None
        self.cached: int | None = None  # tokens of the prompt that others had computed, once it has run
        self.dropped = 0  # old tokens that are not known any more
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None  # why it ended, if nothing could be drawn
        self.output = Output(self.stop, self.markers)
        self.scores = Scores(self.prompt, self.logprobs, self.prompt_logprobs)
        self.rows: list[npt.NDArray[np.float32]] = []  # what is read
        self.sampler: Sampler | None = None
        self.applied: tuple[Applied, ...] = ()  # its adapters, once the engine has found them
        self.adapter_key: tuple[Hashable, ...] = ()  # which they are, by their contents
        self.drafting = Drafting()
        self.times = Times()

    @property
    def generated(self) -> list[int]:
        return self.output.tokens

    @property
    def pieces(self) -> list[str]:
        return self.output.pieces

    @property
    def pending(self) -> int:
        """Known tokens that are not in the cache yet."""
        return len(self.known) - self.computed

    @property
    def held(self) -> bool:
        """It would compute what its leader is computing."""
        leader = self.leader
        return leader is not None and leader.finish_reason is None and not leader.generated

    @property
    def wanted(self) -> range:
        """The positions whose outputs are wanted: those to be read or scored, else the last, to go on from."""
        if self.reads is not None:
            return self.reads
        first = len(self.scores.prompt) if self.scores.wants_prompt else len(self.known)
        return range(first - 1, len(self.known))

    def read(self, position: int, rows: npt.NDArray[np.float32]) -> None:
        """Keep the outputs of the positions from this one on."""
        if self.reading == "logprobs":
            pairs = zip(rows, self.known[position + 1 :], strict=False)
            rows = np.array([logprob_of(row, token, 0).logprob for row, token in pairs], np.float32)
        self.rows.append(rows.copy())

    @property
    def scope(self) -> Hashable | None:
        """Requests of one scope compute the same for the same tokens and may see it; None: nothing is shared."""
        return (self.cache_salt, *self.adapter_key) if self.cache_prompt else None

    def sample(self, logits: npt.NDArray[np.float32]) -> list[int]:
        """The next token, and those that a grammar leaves no choice about; `logits` is used up."""
        assert self.sampler is not None
        before = logits if self.logprobs is None else logits.copy()
        token = self.sampler.sample(logits, self.known, len(self.known) + self.dropped)
        self.scores.add(before, token)
        return [token, *(self.sampler.forced() if self.logprobs is None else [])]

    @property
    def complete(self) -> bool:
        """Its grammar allows no more tokens."""
        return self.sampler is not None and self.sampler.done

    def fork(self, sampling: Sampling | None = None) -> "Request":
        """Another that knows and has said the same."""
        twin = replace(self, sampling=sampling or self.sampling)
        twin.known, twin.cached, twin.dropped = list(self.known), self.cached, self.dropped
        twin.output.tokens = list(self.output.tokens)
        twin.scores.tokens, twin.scores.prompt = list(self.scores.tokens), list(self.scores.prompt)
        return twin

    def shift(self, room: int, keep: int) -> None:
        """Forget old tokens after the first `keep`, half of them at a time, until the known ones are within `room`."""
        while len(self.known) > room:
            half = (len(self.known) - keep) // 2
            del self.known[keep : keep + half]
            self.dropped += half


@dataclass(frozen=True, slots=True)
class Event:
    """What a step did for a request: the tokens that were made, the text they completed, whether it is done."""

    request: Request
    tokens: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None

    @property
    def logprobs(self) -> list[TokenLogprob | None]:
        """Of the tokens, if they were asked for; until the next step."""
        found = self.request.scores.tokens
        return found[len(found) - len(self.tokens) :]


def _check_scales(adapters: Mapping[str, float]) -> None:
    if not isinstance(adapters, Mapping):
        raise RequestError(f"adapters is {adapters!r}: names with their scales are expected", "adapters")
    for name, scale in adapters.items():
        number = isinstance(scale, int | float) and not isinstance(scale, bool)
        if not isinstance(name, str) or not number or not math.isfinite(scale):
            raise RequestError(f"adapter {name!r} has the scale {scale!r}: a finite number is expected", "adapters")


OPTIONS = Request.__dataclass_fields__.keys() - {"prompt", "sampling", "all_logits", "reads", "reading"}


def request_of(prompt: Sequence[int], **options: Any) -> Request:
    """A request from options by name: those of the request itself, and those of its sampling."""
    unknown = options.keys() - OPTIONS - Sampling.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join([*sorted(OPTIONS), *Sampling.__dataclass_fields__])
        raise RequestError(f"unknown option {', '.join(sorted(unknown))}: known are {known}", sorted(unknown)[0])
    own = {name: value for name, value in options.items() if name in OPTIONS}
    rest = {name: value for name, value in options.items() if name not in OPTIONS}
    return Request(prompt, Sampling(**rest), **own)
