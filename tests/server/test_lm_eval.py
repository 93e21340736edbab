"""lm-eval's `local-completions` computes log-likelihoods through the server: those of the engine."""

import math
from typing import Any

import pytest
from live_server import Live

from skips import import_peer

PAIRS = [
    ("The capital of Japan is", " Tokyo"),
    ("The capital of Japan is", " Lima, which is far away"),
    ("Once upon a time there was a llama, and", " it lived in the mountains."),
    ("2 + 2 =", " 4"),
]


def expected(live: Live, model: str) -> list[tuple[float, bool]]:
    """The log-likelihood of each continuation, and whether greedy decoding would say it."""
    engine, found = live.engines[model], []
    for context, continuation in PAIRS:
        whole = engine.encode(context + continuation, add_special=False)
        before = engine.encode(context, add_special=False)
        score = engine.score(before, whole[len(before) :])
        greedy = engine.generate(before, temperature=0, max_tokens=len(score.tokens), ignore_eos=True).tokens
        found.append((score.total, greedy == whole[len(before) :]))
    return found


@pytest.mark.parametrize("model", ["smollm2", "stories"])
def test_requests_as_lm_eval_sends_them(live: Live, model: str) -> None:
    """Its `_create_payload` and `parse_logprobs`, replayed with the tokens that it would ask the server for."""
    for (context, continuation), (total, greedy) in zip(PAIRS, expected(live, model), strict=True):
        tokens = _tokens(live, model, context + continuation)
        asked = {"model": model, "prompt": [tokens], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234}
        choice = live.post("/v1/completions", asked | {"echo": True}).json()["choices"][0]
        start = len(_tokens(live, model, context))
        scored, top = (choice["logprobs"][name][start:-1] for name in ("token_logprobs", "top_logprobs"))
        assert math.isclose(sum(scored), total, rel_tol=1e-6)
        assert all(x == max(t.values()) for x, t in zip(scored, top, strict=True)) == greedy
        told = choice["logprobs"]
        assert len(told["tokens"]) == len(tokens) + 1 and all(told["tokens"]), "each has a text, the first too"


def _tokens(live: Live, model: str, text: str) -> list[int]:
    asked = {"prompt": text, "add_special_tokens": False, "model": model}
    tokens: list[int] = live.post("/tokenize", asked).json()["tokens"]
    return tokens


def test_lm_eval(live: Live) -> None:
    """The real one; the server is its tokenizer, as vLLM would be."""
    import_peer("lm_eval")
    completions: Any = import_peer("lm_eval.models.openai_completions")
    instance: Any = import_peer("lm_eval.api.instance")
    client = completions.LocalCompletionsAPI(base_url=f"{live.url}/v1/completions", model="smollm2", num_concurrent=1)
    assert client.tokenizer_backend == "remote"
    asked = [
        instance.Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=at) for at, pair in enumerate(PAIRS)
    ]
    found = client.loglikelihood(asked)
    for (total, greedy), (their_total, their_greedy) in zip(expected(live, "smollm2"), found, strict=True):
        assert math.isclose(total, their_total, rel_tol=1e-6) and greedy == their_greedy
