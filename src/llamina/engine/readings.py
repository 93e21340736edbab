"""What a model says of texts without writing any: logits, embeddings, ranks, likelihoods."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from llamina.engine.core import Core
from llamina.engine.pooling import Array, Pooling, check_pooling, normalized, pool, pooling_of, rows_of
from llamina.engine.request import Request
from llamina.errors import RequestError

Text: TypeAlias = str | Sequence[int]
Scales: TypeAlias = Mapping[str, float]  # of adapters, by name


@dataclass(frozen=True, slots=True)
class Score:
    """Tokens, and the logarithm of the probability of each after all that came before it."""

    tokens: list[int]
    logprobs: list[float]

    @property
    def total(self) -> float:
        """The logarithm of the probability of all of them."""
        return sum(self.logprobs)

    @property
    def perplexity(self) -> float:
        return float(np.exp(-self.total / len(self.tokens)))


class Readings(Core):
    """An engine that reads, with `adapters` if any are named. Texts may be given as tokens; several go together."""

    def encode(self, prompt: Text, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Text as prompt tokens (token ids pass through)."""
        if not isinstance(prompt, str):
            return [int(t) for t in prompt]
        return self.tokenizer.encode(prompt, add_special=add_special, parse_special=parse_special)

    def logits(self, tokens: Iterable[int], adapters: Scales | None = None) -> Array:
        """Logits after every token, [tokens, vocab]."""
        return self._read([Request(list(tokens), all_logits=True, adapters=adapters or {})])[0]

    def hidden(self, tokens: Iterable[int], adapters: Scales | None = None) -> Array:
        """The last hidden state of every token, normed as the output matrix sees it, [tokens, width]."""
        known = list(tokens)
        return self._read([Request(known, reads=range(len(known)), reading="hidden", adapters=adapters or {})])[0]

    def embed(
        self,
        texts: Text | Sequence[Text],
        *,
        pooling: Pooling | None = None,
        normalize: bool = True,
        adapters: Scales | None = None,
    ) -> Array:
        """A vector for each text, [texts, width], of length 1 if `normalize`.

        `pooling` makes it of the tokens' hidden states: their mean or max, the first (cls) or the last. Without it, as
        the file says; if it says nothing, the last of a model that reads forward, else the mean. `rank` gives a
        classifier's scores instead, as they are.
        """
        kind = check_pooling(pooling) if pooling is not None else self.pooling
        known = [self.encode(text, parse_special=False) for text in _several(texts)]
        how: dict[str, Any] = {"reading": "rank" if kind == "rank" else "hidden", "adapters": adapters or {}}
        requests = [Request(t, reads=rows_of(kind, self.model.causal, len(t)), **how) for t in known]
        vectors = [_sound(pool(rows, kind)) for rows in self._read(requests)]
        return np.stack([normalized(v) for v in vectors] if normalize and kind != "rank" else vectors)

    @property
    def pooling(self) -> Pooling:
        """How `embed` makes one vector of a text's, unless told otherwise."""
        return pooling_of(self.model.config, self.model.causal)

    def rerank(self, query: str, documents: Sequence[str], *, adapters: Scales | None = None) -> Array:
        """How well each document answers the query, [documents]: the more the better, on the model's own scale."""
        if isinstance(documents, str):
            raise RequestError("documents is a text: a list of texts is expected", "documents")
        pairs = [self._pair(query, document) for document in documents]
        scores = self.embed(pairs, pooling="rank", adapters=adapters)
        return np.ascontiguousarray(scores[:, 0])

    def _pair(self, query: str, document: str) -> list[int]:
        """Both as one prompt: by the file's template, else one after the other with what separates them."""
        if template := self.tokenizer.chat_templates.get("rerank"):
            parts = {"{query}": query, "{document}": document}
            text = re.sub(r"\{query\}|\{document\}", lambda match: parts[match[0]], template)
            return self.tokenizer.encode(text, parse_special=True)
        special, rules = self.tokenizer.special, self.tokenizer
        end = [special.get("eos", special.get("sep", -1))] if rules.add_eos else []
        begin, middle = [special["bos"]] if rules.add_bos else [], [special["sep"]] if rules.add_sep else []
        return [*begin, *rules.encode(query), *end, *middle, *rules.encode(document), *end]

    def score(self, prompt: Text, continuation: Text, *, adapters: Scales | None = None) -> Score:
        """How likely the model finds a continuation of a prompt, token by token."""
        before, after = self.encode(prompt), self.encode(continuation, add_special=False)
        if not before or not after:
            raise RequestError("the prompt or its continuation is empty: both need a token", "continuation")
        n = len(before) + len(after)
        reads = range(len(before) - 1, n - 1)
        found = self._read([Request([*before, *after], reads=reads, reading="logprobs", adapters=adapters or {})])[0]
        return Score(after, [float(x) for x in _sound(found)])

    def token_scores(self, text: Text, *, adapters: Scales | None = None) -> Score:
        """How likely the model finds each token of a text after the first.

        A text longer than the context is read in windows that overlap by half.
        """
        tokens = self.encode(text, parse_special=False)
        if len(tokens) < 2:
            raise RequestError(f"the text has {len(tokens)} tokens: at least 2 are needed, as the first has no score")
        how: dict[str, Any] = {"reading": "logprobs", "adapters": adapters or {}}
        requests = [
            Request(tokens[start:stop], reads=range(first - start - 1, stop - start - 1), **how)
            for start, first, stop in windows(len(tokens), min(self.context, self.limits.cache))
        ]
        return Score(tokens[1:], [float(x) for x in _sound(np.concatenate(self._read(requests)))])

    def perplexity(self, text: Text, *, adapters: Scales | None = None) -> float:
        """How many tokens the model takes to be as likely as the right one, on average: see `token_scores`."""
        return self.token_scores(text, adapters=adapters).perplexity

    def _read(self, requests: Sequence[Request]) -> list[Array]:
        """What each request asked to read; nothing of them is left if one cannot be computed."""
        try:
            for request in requests:
                self.submit(request)
            while any(request.finish_reason is None for request in requests):
                self.step()
        except BaseException:
            for request in requests:
                self.cancel(request)
            raise
        return [np.concatenate(request.rows) for request in requests]


def _sound(numbers: Array) -> Array:
    """The numbers; none of them may be no number."""
    if np.isnan(numbers).any():
        raise RequestError("what the model computes is no number: the model is damaged, or an adapter spoils it")
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
    if isinstance(texts, str):
        return [texts]
    found = list(texts)
    if not found:
        raise RequestError("there is nothing to embed: give a text, tokens, or a list of them", "texts")
    whole = [not isinstance(item, str) and not hasattr(item, "__len__") for item in found]
    return [found] if all(whole) else found  # type: ignore[list-item, return-value]
