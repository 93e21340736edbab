"""What callers get back."""

from dataclasses import dataclass, field

from llamina.engine.request import FinishReason, Request
from llamina.sampling import TokenLogprob


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts and where the time went."""

    prompt_tokens: int
    completion_tokens: int
    prompt_seconds: float
    completion_seconds: float
    cached_tokens: int = 0  # of the prompt, computed before for another request
    drafted_tokens: int = 0  # guessed ahead, to be verified several in one step
    accepted_tokens: int = 0  # of those, the ones that were right
    speculation_off: str = ""  # why nothing is guessed ahead

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second."""
        return self.prompt_tokens / max(self.prompt_seconds, 1e-9)

    @property
    def acceptance_rate(self) -> float:
        """The share of guesses that were right."""
        return self.accepted_tokens / max(self.drafted_tokens, 1)

    @property
    def completion_rate(self) -> float:
        """Generated tokens per second, after the first."""
        return max(self.completion_tokens - 1, 0) / max(self.completion_seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished generation."""

    text: str
    tokens: list[int]
    finish_reason: FinishReason
    usage: Usage
    logprobs: list[TokenLogprob | None] | None = None  # of the tokens, if they were asked for
    prompt_logprobs: list[TokenLogprob | None] | None = None  # the first token of a prompt has none
    alternatives: list["Completion"] = field(default_factory=list)  # other answers, where several were asked for

    @property
    def cumulative_logprob(self) -> float | None:
        """How likely the whole is, where `logprobs` were asked for."""
        return None if self.logprobs is None else sum(found.logprob for found in self.logprobs if found)

    def __str__(self) -> str:
        return self.text


def completion_of(request: Request) -> Completion:
    """What a request has said; the token that ended it is left out."""
    tokens, scores = request.output.spoken, request.scores
    return Completion(
        "".join(request.pieces),
        tokens,
        request.finish_reason or "cancelled",
        usage_of(request),
        scores.tokens[: len(tokens)] if scores.n is not None else None,
        scores.prompt if scores.n_prompt is not None else None,
    )


def usage_of(request: Request) -> Usage:
    times, drafting = request.times, request.drafting
    first, last = (times.submitted if t is None else t for t in (times.first, times.last))
    return Usage(
        prompt_tokens=len(request.prompt),
        completion_tokens=len(request.generated),
        prompt_seconds=first - times.submitted,
        completion_seconds=last - first,
        cached_tokens=request.cached or 0,
        drafted_tokens=drafting.drafted,
        accepted_tokens=drafting.accepted,
        speculation_off=drafting.off,
    )
