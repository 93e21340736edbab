"""What callers get back."""

from dataclasses import dataclass, field

from llamina.engine.delta import FinishReason
from llamina.engine.sequence import Sequence
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
    seed: int | None = None  # that was drawn with
    score: float | None = None  # of a beam: `cumulative_logprob` by its length to the power of `length_penalty`
    beam_logprob: float | None = None  # of a beam: the log-probability of its tokens, that of its end included

    @property
    def cumulative_logprob(self) -> float | None:
        """How likely the whole is, where `logprobs` were asked for or it is a beam."""
        if self.logprobs is None:
            return self.beam_logprob
        return sum(found.logprob for found in self.logprobs if found)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from llamina.engine.tasks.display import html_of

        return html_of(self)


def completion_of(sequence: Sequence) -> Completion:
    """What a sequence has generated; the token that ended it is left out."""
    tokens, logprobs, sampler = sequence.output.spoken, sequence.logprobs, sequence.sampler
    return Completion(
        sequence.text,
        tokens,
        sequence.finish_reason or "cancelled",
        usage_of(sequence),
        logprobs.tokens[: len(tokens)] if logprobs.n is not None else None,
        logprobs.prompt if logprobs.n_prompt is not None else None,
        seed=sampler.random.seed if sampler is not None else None,
    )


def usage_of(sequence: Sequence) -> Usage:
    times, drafting = sequence.times, sequence.drafting
    first, last = (times.submitted if t is None else t for t in (times.first, times.last))
    return Usage(
        prompt_tokens=len(sequence.request.prompt),
        completion_tokens=len(sequence.generated),
        prompt_seconds=first - times.submitted,
        completion_seconds=last - first,
        cached_tokens=sequence.cached or 0,
        drafted_tokens=drafting.drafted,
        accepted_tokens=drafting.accepted,
        speculation_off=drafting.off,
    )
