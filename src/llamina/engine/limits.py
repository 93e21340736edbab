"""What can be asked of an engine, refused before anything changes."""

from collections.abc import Iterable
from dataclasses import dataclass

from llamina.engine.request import Request
from llamina.engine.sequence import Sequence
from llamina.errors import CapacityError, ContextTooLong, RequestError


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that a request must respect."""

    context: int
    cache: int  # tokens that all pages hold
    vocab: int
    step: int | None = None  # tokens of one step, where a request must be computed in one

    @property
    def room(self) -> int:
        """The longest sequence that can be continued."""
        return min(self.context - 1, self.cache)

    def check_tokens(self, tokens: Iterable[int], param: str) -> None:
        kept = tuple(tokens)
        if kept and not 0 <= min(kept) <= max(kept) < self.vocab:
            raise RequestError(f"the {param} has a token outside the vocabulary of {self.vocab}", param)

    def check_request(self, request: Request) -> None:
        """The tokens of a prompt, without what stands for rows in it, and those that end the answer."""
        self.check_tokens([t for t in request.prompt if t >= 0] if request.embedded else request.prompt, "prompt")
        self.check_tokens(request.stop_tokens, "stop_tokens")

    def check_keep(self, keep: int) -> None:
        if keep > self.room - 2:
            raise RequestError(
                f"n_keep is {keep} and there is room for {self.room} tokens: keep fewer, or load the model with a "
                "larger context",
                "n_keep",
            )

    def check_fit(self, sequence: Sequence) -> None:
        n, reads = len(sequence.known), sequence.request.reads is not None
        if n > (self.context if reads else self.context - 1):
            fact = f"the prompt has {n} tokens and the context holds {self.context}"
            load, drop = "load the model with a larger context", "have old tokens dropped (truncate=True)"
            advice = f"or {load}" if reads else f"{load}, or {drop}"  # outputs are read of all tokens
            raise ContextTooLong(f"{fact}: shorten it, {advice}", "prompt")
        if n > self.cache:
            raise CapacityError(
                f"the prompt has {n} tokens and the cache holds {self.cache}: "
                "shorten it, or load the model with more cache_tokens"
            )
        if self.step is not None and (sequence.request.reads is None or sequence.request.reading == "logprobs"):
            raise RequestError(
                "the model reads its tokens both ways and cannot write one after the other: "
                "ask for their logits or embeddings"
            )
        if self.step is not None and n > self.step:
            raise CapacityError(
                f"the prompt has {n} tokens and must be computed in one step, which holds {self.step}: "
                "shorten it, or load the model with more step_tokens"
            )

    def check_fork(self, sequence: Sequence) -> None:
        if sequence.finish_reason is not None or sequence.request.reads is not None:
            why = "makes no tokens" if sequence.request.reads is not None else f"is done ({sequence.finish_reason})"
            raise RequestError(f"the request {why}: one that is generating can be forked", "request")

    @staticmethod
    def check_unused(adapter: str, sequences: Iterable[Sequence]) -> None:
        """Raise RequestError if a sequence uses an adapter."""
        users = sum(adapter in sequence.request.adapters for sequence in sequences)
        if users:
            raise RequestError(
                f"{users} requests use adapter {adapter!r}: wait until they are done, or cancel them", "name"
            )

    def check_rewind(self, sequence: Sequence, n: int, more: int) -> None:
        """Whether `more` tokens can take the place of the last n."""
        made, most = len(sequence.generated), sequence.request.max_tokens
        there = min(made, len(sequence.known) - max(1, sequence.request.n_keep)) if sequence.dropped else made
        if sequence.request.reads is not None or not 0 <= n <= there:
            raise RequestError(f"{n} tokens cannot be taken back: the request knows {there} that it made", "n")
        if len(sequence.known) - n + more > self.room:
            raise ContextTooLong(f"{more} more tokens do not fit: there is room for {self.room} in all", "tokens")
        if most is not None and made - n + more >= most:
            raise RequestError(f"max_tokens is {most}: after these tokens nothing is left to make", "tokens")
