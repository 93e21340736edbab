"""What a model says of texts without generating any: logits, embeddings, ranks, likelihoods."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from llamina.engine.cancellation import SCOPE
from llamina.engine.embedded import Embedded, Prompt
from llamina.engine.request import Reading, Request
from llamina.engine.sequence import Sequence as EngineSequence
from llamina.engine.sequence import Sink
from llamina.engine.tasks.n_best import AHEAD
from llamina.engine.tasks.pooling import Array, Pooling, check_pooling, normalized, pool, rows_of
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine

Text: TypeAlias = str | Sequence[int] | Sequence[int | Embedded] | Sequence[Mapping[str, Any]]
Scales: TypeAlias = Mapping[str, float]  # of adapters, by name


@dataclass(frozen=True, slots=True)
class Score:
    """Tokens, and the log-probability of each after all that came before it."""

    tokens: list[int]
    logprobs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of all of them together."""
        return sum(self.logprobs)

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.total / len(self.tokens)))


def outputs(engine: "Engine", reading: Reading, tokens: Sequence[int], adapters: Scales | None) -> Array:
    """The logits or hidden states of every token, [tokens, width]."""
    request = Request(tokens, reads=range(len(tokens)), reading=reading, adapters=adapters or {})
    return engine.read([request])[0]


def read(engine: "Engine", requests: Sequence[Request]) -> list[Array]:
    """The outputs that each request reads; nothing of them is left if one cannot be computed."""
    return [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in read_parts(engine, requests)]


def read_parts(engine: "Engine", requests: Sequence[Request], sink: Sink | None = None) -> list[list[Any]]:
    """The same, in the parts in which steps have computed them; `sink` takes them from where a device has them."""
    ahead = AHEAD * engine.runner.budget.sequences
    if (scope := SCOPE.get()) is not None and scope.cache_salt:
        requests = [replace(request, cache_salt=scope.cache_salt) for request in requests]
    sequences: list[EngineSequence] = []
    found = []
    try:
        for i in range(len(requests)):
            if len(sequences) - i <= ahead // 2:
                more = [engine.core.prepare(request) for request in requests[len(sequences) : i + ahead]]
                sequences += more
                for one in more:
                    one.sink = sink
                engine.enqueue(more)
            sequence = sequences[i]
            engine.stepper.wait(lambda sequence=sequence: sequence.done)  # type: ignore[misc]
            if sequence.finish_reason != "stop":
                raise sequence.error or RequestError("the request was cancelled: ask again")
            found.append(sequence.rows)
            sequences[i].rows = []
    except BaseException:
        for sequence in sequences:
            engine.cancel(sequence)
        raise
    return found


def embed(
    engine: "Engine",
    texts: Text | Sequence[Text],
    pooling: Pooling | None,
    normalize: bool,
    adapters: Scales | None,
    priority: int = 0,
) -> Array:
    """A vector for each text, [texts, width]."""
    kind = check_pooling(pooling) if pooling is not None else engine.pooling
    prompts = [engine.encode(text, parse_special=False) for text in _several(texts)]
    reading = "rank" if kind == "rank" else "hidden"
    params: dict[str, Any] = {"reading": reading, "adapters": adapters or {}, "priority": priority}
    model = engine.runner.model
    if kind == "rank" and model.ranks_mean:
        means = embed(engine, prompts, "mean", False, adapters, priority)
        prompts = [Prompt([Embedded(mean[np.newaxis])]) for mean in means]
    requests = [Request(tokens, reads=rows_of(kind, model.causal, len(tokens)), **params) for tokens in prompts]
    vectors = [_finite(pool(rows, kind)) for rows in engine.read(requests)]
    return np.stack([normalized(v) for v in vectors] if normalize and kind != "rank" else vectors)


def rerank(engine: "Engine", query: str, documents: Sequence[str], adapters: Scales | None) -> Array:
    """A score for each document, [documents]."""
    if isinstance(documents, str):
        raise RequestError("documents is a text: it must be a list of texts", "documents")
    pairs = [pair_tokens(engine, query, document) for document in documents]
    return np.ascontiguousarray(embed(engine, pairs, "rank", True, adapters)[:, 0])


def pair_tokens(engine: "Engine", query: str, document: str) -> list[int]:
    """Both as one prompt: by the file's template, else one after the other with what separates them."""
    tokenizer = engine.tokenizer
    if template := tokenizer.chat_templates.get("rerank"):
        parts = {"{query}": query, "{document}": document}
        text = re.sub(r"\{query\}|\{document\}", lambda match: parts[match[0]], template)
        return tokenizer.encode(text, parse_special=True)
    special = tokenizer.special
    end = [special.get("eos", special.get("sep", -1))] if tokenizer.add_eos else []
    begin, middle = [special["bos"]] if tokenizer.add_bos else [], [special["sep"]] if tokenizer.add_sep else []
    return [*begin, *tokenizer.encode(query), *end, *middle, *tokenizer.encode(document), *end]


def score(engine: "Engine", prompt: Text, continuation: Text, adapters: Scales | None) -> Score:
    """The log-probability of each token of a continuation."""
    before, after = engine.encode(prompt), engine.encode(continuation, add_special=False)
    if not before or not after:
        raise RequestError("the prompt or its continuation is empty: both need a token", "continuation")
    reads = range(len(before) - 1, len(before) + len(after) - 1)
    tokens = Prompt(before)
    tokens.extend(after)
    logprobs = engine.read([Request(tokens, reads=reads, reading="logprobs", adapters=adapters or {})])[0]
    return Score(after, [float(x) for x in _finite(logprobs)])


def token_scores(engine: "Engine", text: Text, adapters: Scales | None) -> Score:
    """The log-probability of each token of a text after the first, read in windows that overlap by half."""
    tokens = engine.encode(text, parse_special=False)
    if len(tokens) < 2:
        raise RequestError(f"the text has {len(tokens)} tokens: at least 2 are needed, as the first has no score")
    params: dict[str, Any] = {"reading": "logprobs", "adapters": adapters or {}}
    requests = [
        Request(tokens[start:stop], reads=range(first - start - 1, stop - start - 1), **params)
        for start, first, stop in windows(len(tokens), min(engine.context, engine.core.limits.cache))
    ]
    return Score(tokens[1:], [float(x) for x in _finite(np.concatenate(engine.read(requests)))])


def _finite(numbers: Array) -> Array:
    """The numbers; raises RequestError if one of them is NaN."""
    if np.isnan(numbers).any():
        raise RequestError("the model computes NaN: its file is damaged, or an adapter spoils it")
    return numbers


def windows(n: int, size: int) -> Iterator[tuple[int, int, int]]:
    """(start, first new one, stop) of windows that overlap by half; each of n tokens but the first is new in one."""
    start, first = 0, 1
    while first < n:
        stop = min(start + size, n)
        yield start, first, stop
        start, first = stop - size // 2, stop


def _several(texts: Text | Sequence[Text]) -> list[Text]:
    """One text or several, as several."""
    if isinstance(texts, str | Prompt):
        return [texts]
    items = list(texts)
    if not items:
        raise RequestError("there is nothing to embed: give a text, tokens, or a list of them", "texts")
    whole = [not isinstance(item, str) and not hasattr(item, "__len__") for item in items]
    return [items] if all(whole) else items  # type: ignore[list-item, return-value]
