"""What an answer took, and how likely its tokens were, as OpenAI's objects have it."""

from llamina.server.model.frames import Logprob, Usage
from llamina.server.openai.schema import CompletionUsage, Timings, TokenLogprob, TopLogprob


def usage(parts: list[Usage]) -> CompletionUsage:
    """The counts of all answers; the prompt is counted once."""
    prompt = max((part.prompt_tokens for part in parts), default=0)
    made = sum(part.completion_tokens for part in parts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": parts[0].cached_tokens if parts else 0},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(part.accepted_tokens for part in parts),
            "rejected_prediction_tokens": sum(part.drafted_tokens - part.accepted_tokens for part in parts),
        },
    }


def timings(parts: list[Usage]) -> Timings | None:
    """Of the first answer, under llama.cpp's names."""
    if not parts:
        return None
    first = parts[0]
    computed = first.prompt_tokens - first.cached_tokens
    return {
        "cache_n": first.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": 1e3 * first.prompt_seconds,
        "prompt_per_token_ms": 1e3 * first.prompt_seconds / max(computed, 1),
        "prompt_per_second": computed / max(first.prompt_seconds, 1e-9),
        "predicted_n": first.completion_tokens,
        "predicted_ms": 1e3 * first.completion_seconds,
        "predicted_per_token_ms": 1e3 * first.completion_seconds / max(first.completion_tokens - 1, 1),
        "predicted_per_second": max(first.completion_tokens - 1, 0) / max(first.completion_seconds, 1e-9),
        "draft_n": first.drafted_tokens,
        "draft_n_accepted": first.accepted_tokens,
    }


def logprobs(entries: list[Logprob | None]) -> list[TokenLogprob]:
    """Log-probabilities as the chat API has them."""
    return [{**_entry(x), "top_logprobs": [_entry(top) for top in x.top]} for x in entries if x is not None]


def _entry(x: Logprob) -> TopLogprob:
    return {"token": x.bytes.decode("utf-8", "replace"), "logprob": max(x.logprob, -9999.0), "bytes": list(x.bytes)}
