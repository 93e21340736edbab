"""Perplexity by llama.cpp's definition: windows, the estimate, and llama.cpp's own figures."""

import math
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.bench.perplexity import Window, cut, estimate, measure_perplexity, split
from llamina.errors import RequestError
from tales import TALE

# llama-perplexity (ggml 0c1e570) -m stories260K.gguf -f tale.txt -c N, where tale.txt is TALE and a newline:
# "Final estimate: PPL = 6.6632 +/- 0.47787" and so on, and the number of chunks.
STORIES = {64: (6.6632, 0.47787, 26), 128: (5.9704, 0.42546, 13), 512: (7.2290, 0.57114, 3)}
# The same with SmolLM2-135M-Instruct.Q4_1.gguf -c 256.
SMOLLM2 = (1.6516, 0.09079, 3)


def quiet(done: int, total: int) -> None:
    """Nobody watches."""


def test_windows() -> None:
    """Whole windows only; what is scored comes after the first half and one more."""
    first, second = cut(range(10, 29), 8)
    assert split(first, None) == Window([10, 11, 12, 13, 14], [15, 16, 17])
    assert split(second, None) == Window([18, 19, 20, 21, 22], [23, 24, 25])
    first, second = cut(range(10, 24), 7)
    assert split(first, 1) == Window([1, 11, 12, 13], [14, 15, 16])
    assert split(second, 1) == Window([1, 18, 19, 20], [21, 22, 23])


def test_what_cannot_be_cut_into_windows() -> None:
    with pytest.raises(
        RequestError, match="the text has 15 tokens, and at least two windows of 8 are needed, 16 tokens"
    ):
        cut(range(15), 8)
    with pytest.raises(RequestError, match="at least 4 are needed"):
        cut(range(15), 3)


def test_the_estimate() -> None:
    """exp of the mean loss, and its standard error: that of the mean, times its slope."""
    losses = np.array([1.0, 2.0, 4.0, 5.0])
    found = estimate((-losses).tolist())
    assert found.perplexity == pytest.approx(math.exp(3)) and found.count == 4
    assert found.error == pytest.approx(math.exp(3) * losses.std(ddof=1) / 2)
    assert estimate([-1.0, -1.0]).error == 0


@pytest.mark.parametrize("size", STORIES)
def test_llama_cpp_s_figures(stories: Path, size: int) -> None:
    perplexity, error, count = STORIES[size]
    with llamina.load(stories, context=size, threads=1) as engine:
        found = measure_perplexity(engine, TALE, size, quiet)
    assert found.windows == count and found.estimate.count == count * (size - size // 2 - 1) == len(found.tokens)
    assert found.estimate.perplexity == pytest.approx(perplexity, rel=2e-4)
    assert found.estimate.error == pytest.approx(error, rel=1e-3)


def test_llama_cpp_s_figures_of_quantized_weights(smollm2: Path) -> None:
    perplexity, error, count = SMOLLM2
    with llamina.load(smollm2, context=256) as engine:
        found = measure_perplexity(engine, TALE, 256, quiet)
    assert found.windows == count
    assert found.estimate.perplexity == pytest.approx(perplexity, rel=2e-3)
    assert found.estimate.error == pytest.approx(error, rel=5e-3)


def test_it_is_what_the_logits_say(stories: Path) -> None:
    told: list[tuple[int, int]] = []
    with llamina.load(stories, context=64, threads=1) as engine:
        found = measure_perplexity(engine, TALE, 64, lambda done, total: told.append((done, total)))
        tokens = [*engine.encode(TALE)[64:128]]
        logits = engine.logits([engine.tokenizer.bos or 0, *tokens[1:]]).astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = [logs[i, tokens[i + 1]] for i in range(32, 63)]
    assert found.tokens[31:62] == tokens[33:] and found.logprobs[31:62] == pytest.approx(expected, abs=1e-4)
    assert told == [(done, 26) for done in range(27)]
