"""What is asked of the engine: an immutable request, checked when it is made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from llamina.engine.embedded import Embedded, Prompt
from llamina.engine.speculation.modes import Speculate, check_mode
from llamina.errors import InvalidGrammar, RequestError, check_whole
from llamina.grammar import Grammar, Source, Triggers, source
from llamina.sampling import LogitsProcessor, Sampling

Reading = Literal["logits", "logprobs", "hidden", "rank"]


class ReasoningLimit(NamedTuple):
    """Reasoning of so many tokens, and what it is known by."""

    tokens: int
    opening: str  # the marker that it begins with; empty if the prompt has it
    ends: Sequence[str]  # markers that end it
    closing: Sequence[int]  # the tokens that it is ended with


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt and how to continue it, or what to read from it. Submitting one twice gives two sequences."""

    prompt: Sequence[int]  # token ids; of a `Prompt`, with the rows that stand in the place of tokens
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None  # None: until the context is full
    min_tokens: int = 0  # so many come before a token or a stop string may end the answer
    stop: Sequence[str] | str = ()
    stop_tokens: Sequence[int] = ()  # that end the answer as an end-of-generation token does
    bad_words: Sequence[str] | str = ()  # that are not generated, each by itself or after a space
    include_stop: bool = False  # the stop string that ends the answer is part of its text
    markers: Sequence[str] = ()  # control tokens, by name, that are part of the text
    reasoning_limit: ReasoningLimit | None = None  # longer reasoning is ended; None: it may be of any length
    ignore_eos: bool = False  # go on after an end-of-generation token
    priority: int = 0  # each level is worth a head start over some earlier requests; below 0, later ones go first
    logits_processor: LogitsProcessor | None = None  # (tokens so far, logits) → logits, before everything else
    cache_prompt: bool = True  # reuse cached prefixes, and leave this one's pages to others
    cache_salt: str = ""  # prefixes are shared only between requests with the same salt
    truncate: bool = False  # drop old tokens of a prompt that is too long
    context_shift: bool = False  # drop old tokens when the context is full, and go on
    n_keep: int = 0  # the first tokens that are never dropped; BOS is not dropped in any case
    logprobs: int | None = None  # log-probability of each token, and of so many of the likeliest; None: not told
    prompt_logprobs: int | None = None  # the same of the prompt's tokens
    index: int = 0  # of several answers to a prompt, which: each has a random stream of its own
    grammar: str | Grammar | None = None  # GBNF that the answer follows, or a Grammar; of these five, one at most
    json_schema: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choices: Sequence[str] | None = None
    lark: str | None = None
    triggers: Triggers | None = None  # the answer is free until one of these texts; None: all of it follows the grammar
    adapters: Mapping[str, float] = field(default_factory=dict)  # loaded LoRAs by name with their scales, in order
    speculate: Speculate = "auto"  # "ngram", "draft", "off", or how many draft tokens in every step
    reads: range | None = None  # positions whose outputs are returned; nothing is generated
    reading: Reading = "logits"  # logits, the next token's log-probability, hidden states, or a classifier's scores
    embedded: Mapping[int, Embedded] = field(default_factory=dict)  # rows by the position of the first
    source: Source | None = field(init=False, default=None)  # the grammar, of whichever kind

    def __post_init__(self) -> None:
        embedded = self.prompt.embedded if isinstance(self.prompt, Prompt) else self.embedded
        self._set(prompt=_tokens(self.prompt), embedded=embedded)
        if not self.prompt:
            raise RequestError("the prompt is empty: at least one token is needed to continue from", "prompt")
        check_whole("max_tokens", self.max_tokens, 1, optional=True)
        check_whole("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            message = f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens}: must be at most that"
            raise RequestError(message, "min_tokens")
        check_whole("priority", self.priority)
        check_whole("n_keep", self.n_keep, 0)
        check_whole("index", self.index, 0, (1 << 64) - 1)
        check_whole("logprobs", self.logprobs, 0, optional=True)
        check_whole("prompt_logprobs", self.prompt_logprobs, 0, optional=True)
        for name in ("ignore_eos", "include_stop", "cache_prompt", "truncate", "context_shift"):
            if not isinstance(value := getattr(self, name), bool):
                raise RequestError(f"{name} is {value!r}: it must be True or False", name)
        if self.logits_processor is not None and not callable(self.logits_processor):
            what = f"logits_processor is {self.logits_processor!r}: it must be a function of tokens and logits"
            raise RequestError(what, "logits_processor")
        self._set(stop=_texts("stop", self.stop), markers=tuple(self.markers), adapters=_scales(self.adapters))
        self._set(bad_words=_texts("bad_words", self.bad_words))
        self._set(stop_tokens=_tokens(self.stop_tokens, "stop_tokens"))
        if self.reasoning_limit is not None:
            self._set(reasoning_limit=ReasoningLimit(*self.reasoning_limit))
        check_mode(self.speculate)
        self._check_grammar()
        self._check_dropping()

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _check_grammar(self) -> None:
        if isinstance(self.grammar, Grammar):
            kind = self.grammar.kind
            if kind != "grammar" and getattr(self, kind) is not None:
                raise InvalidGrammar(f"grammar and {kind} are given: give one of them", kind)
            self._set(**{"grammar": None, kind: self.grammar.value})
        self._set(source=source(self.grammar, self.json_schema, self.regex, self.choices, self.lark))  # type: ignore[arg-type]
        if self.triggers is not None and self.source is None:
            raise RequestError("triggers are given without a grammar: give the grammar that they begin", "triggers")
        if self.source is not None and self.triggers is None and (self.ignore_eos or self.min_tokens):
            name = "ignore_eos" if self.ignore_eos else "min_tokens"
            message = f"{name} is given with {self.source.kind}: an answer that follows it must be able to end"
            raise RequestError(message, name)

    def _check_dropping(self) -> None:
        if self.truncate and self.prompt_logprobs is not None:
            message = "prompt_logprobs are given with truncate: they need the whole prompt"
            raise RequestError(message, "prompt_logprobs")
        if self.embedded and (self.truncate or self.context_shift):
            message = "truncate and context_shift are given with rows in the prompt: rows cannot be dropped"
            raise RequestError(message, "context_shift" if self.context_shift else "truncate")
        if self.embedded and self.prompt_logprobs is not None:
            message = "prompt_logprobs are given with rows in the prompt: rows have no probabilities"
            raise RequestError(message, "prompt_logprobs")
        if self.reads is not None and (self.truncate or self.context_shift):
            raise RequestError(
                "truncate and context_shift are for generating: outputs are read of all tokens", "truncate"
            )


def _tokens(given: object, name: str = "prompt") -> tuple[int, ...]:
    noun = "the prompt" if name == "prompt" else name
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise RequestError(f"{noun} is {_kind(given)}: it must be token ids", name)
    tokens = tuple(given)
    if {*map(type, tokens)} <= {int}:
        return tokens
    for token in tokens:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise RequestError(f"{noun} has {token!r} in it: token ids are whole numbers", name)
    return tuple(int(token) for token in tokens)


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else repr(value)


def _texts(name: str, given: object) -> tuple[str, ...]:
    """Texts as a tuple; one may be given by itself. Bad words are more than spaces."""
    texts = (given,) if isinstance(given, str) else given
    spaces = " " if name == "bad_words" else ""
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text.strip(spaces) for text in texts):
        none = "none of them empty" + (" or spaces alone" if spaces else "")
        raise RequestError(f"{name} is {given!r}: it must be a text or a list of texts, {none}", name)
    return tuple(texts)


def _scales(adapters: object) -> dict[str, float]:
    if not isinstance(adapters, Mapping):
        raise RequestError(f"adapters is {adapters!r}: it must be names with their scales", "adapters")
    for name, scale in adapters.items():
        number = isinstance(scale, int | float) and not isinstance(scale, bool)
        if not isinstance(name, str) or not number or not math.isfinite(scale):
            raise RequestError(f"adapter {name!r} has the scale {scale!r}: it must be a finite number", "adapters")
    return dict(adapters)


OPTIONS = Request.__dataclass_fields__.keys() - {"prompt", "embedded", "sampling", "reads", "reading", "source"}
SAMPLING = Sampling.__dataclass_fields__.keys()


def request_of(prompt: Sequence[int], options: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Request:
    """A request from options by name: those of the request itself, and those of its sampling.

    `defaults` are sampling parameters that the model comes with. An unknown option raises RequestError.
    """
    check_names(options, OPTIONS | SAMPLING)
    own = {name: value for name, value in options.items() if name in OPTIONS}
    rest = {name: value for name, value in options.items() if name in SAMPLING}
    return Request(prompt, Sampling(**{**(defaults or {}), **rest}), **own)


OTHER_NAMES = {  # as other libraries call it
    "n_ctx": "context",
    "ctx_size": "context",
    "n_threads": "threads",
    "temp": "temperature",
    "max_new_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "repetition_penalty": "repeat_penalty",
    "stop_sequences": "stop",
    "stop_token_ids": "stop_tokens",
    "include_stop_str_in_output": "include_stop",
    "lora": "adapters",
    "max_num_seqs": "max_sequences",
    "max_batch_size": "max_sequences",
    "n_batch": "step_tokens",
    "type_k": "kv_type",
    "cache_type_k": "kv_type",
    "kv_cache_dtype": "kv_type",
    "template": "chat_template",
    "rope_scaling_type": "rope_scaling",
}


def check_names(options: Mapping[str, Any], known: "set[str] | frozenset[str]") -> None:
    """Raise RequestError for the first option that is not known, with the name that was probably meant."""
    for name in options:
        if name not in known:
            meant = OTHER_NAMES.get(name, "")
            near = [meant] if meant in known else get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise RequestError(f"unknown option {name}: {hint}", name)
