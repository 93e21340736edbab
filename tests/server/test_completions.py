"""What `/v1/completions` does beside continuing a prompt, through OpenAI's client."""

from typing import Any

import openai
import pytest
from live_server import Live


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


def test_best_of(client: openai.OpenAI, live: Live) -> None:
    """The likeliest of several, as the engine ranks them."""
    asked: dict[str, Any] = {"prompt": ["Once upon", "Lily"], "max_tokens": 6, "seed": 5, "temperature": 1.5}
    found = client.completions.create(model="stories", best_of=4, n=2, **asked)
    engine = live.engines["stories"]
    expected = []
    for prompt in asked["prompt"]:
        best = engine.generate(prompt, best_of=4, n=2, max_tokens=6, seed=5, temperature=1.5)
        expected += [best.text, *(other.text for other in best.alternatives)]
    assert [choice.text for choice in found.choices] == expected
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3] and found.choices[0].logprobs is None
    assert found.usage is not None and found.usage.completion_tokens == 2 * 4 * 6, "all that was generated"
    scored = client.completions.create(model="stories", best_of=2, logprobs=1, **asked)
    assert scored.choices[0].logprobs is not None


@pytest.mark.parametrize("prompt", ["Once upon a time", [403, 407, 261, 378]])
def test_echoed_tokens_have_texts_and_places(client: openai.OpenAI, live: Live, prompt: Any) -> None:
    answer = client.completions.create(
        model="stories", prompt=prompt, echo=True, logprobs=2, max_tokens=3, temperature=0
    )
    choice = answer.choices[0]
    assert choice.logprobs is not None and choice.text.startswith("Once upon a time,")
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert tokens is not None and offsets is not None and choice.logprobs.token_logprobs is not None
    begin = 1 if tokens[0] == "<s>" else 0
    assert begin == isinstance(prompt, str) and tokens[begin : begin + 4] == [" Once", " upon", " a", " time"]
    assert "".join(tokens[begin:]) == f" {choice.text}" and choice.logprobs.token_logprobs[0] is None
    for token, offset in zip(tokens[begin:], offsets[begin:], strict=True):
        assert choice.text[offset:].startswith(token.lstrip(" ") if offset == 0 else token)


def test_what_cannot_be_streamed(live: Live) -> None:
    body = {"model": "stories", "stream": True, "prompt": "a", "echo": True, "logprobs": 1}
    refused = live.post("/v1/completions", body)
    assert refused.status_code == 400 and "streamed" in refused.json()["error"]["message"]
    assert live.idle("stories")
