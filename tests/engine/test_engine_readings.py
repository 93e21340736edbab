"""Scores of tokens, perplexity, embeddings of a decoder; encoders are in tests/models/test_encoders.py."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina import Engine, Request
from llamina.engine.tasks.scoring import windows
from llamina.errors import ContextTooLong, RequestError, UnsupportedModel

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play with her toys."


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True).astype(np.float64)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_scores_are_those_of_the_logits(engine: Engine) -> None:
    before, after = engine.encode("Once upon a time"), engine.encode(", there was", add_special=False)
    found = engine.score("Once upon a time", ", there was")
    tokens = [*before, *after]
    rows = log_softmax(engine.logits(tokens))[len(before) - 1 : -1]
    assert found.tokens == after and found == engine.score(before, after)
    assert np.allclose(found.logprobs, rows[np.arange(len(after)), after], atol=1e-6)
    assert found.total == pytest.approx(sum(found.logprobs))
    assert found.total > engine.score("Once upon a time", ", zebra was").total


def test_perplexity(engine: Engine) -> None:
    tokens = engine.encode(TEXT)
    found = engine.token_scores(TEXT)
    rows = log_softmax(engine.logits(tokens))[:-1]
    assert found.tokens == tokens[1:]
    assert np.allclose(found.logprobs, rows[np.arange(len(rows)), tokens[1:]], atol=1e-6)
    assert engine.perplexity(TEXT) == pytest.approx(np.exp(-np.mean(found.logprobs)))
    for nothing in ("", [3]):
        with pytest.raises(RequestError, match="at least 2"):
            engine.perplexity(nothing)


def test_scores_of_a_text_longer_than_the_context(golden: Callable[[str], Path]) -> None:
    with llamina.load(golden("stories260K.gguf"), context=16) as small:
        tokens = small.encode(TEXT)
        found = small.token_scores(tokens).logprobs
        assert len(tokens) > 24 and len(found) == len(tokens) - 1
        assert found[:15] == small.token_scores(tokens[:16]).logprobs
        assert found[15:23] == small.token_scores(tokens[8:24]).logprobs[7:], "half a window came before"


@pytest.mark.parametrize(("n", "size"), [(2, 2), (3, 2), (9, 4), (40, 16), (16, 16), (17, 16), (100, 7)])
def test_windows_show_each_token_once(n: int, size: int) -> None:
    found = list(windows(n, size))
    assert [i for _, first, stop in found for i in range(first, stop)] == list(range(1, n))
    assert all(0 <= start < first < stop <= start + size for start, first, stop in found)
    assert all(first - start >= size // 2 for start, first, _ in found[1:])


def test_embeddings_of_a_decoder(engine: Engine) -> None:
    texts = ["Lily likes to play.", TEXT, "Tom"]
    hidden = engine.hidden(engine.encode(TEXT))
    assert np.array_equal(engine.embed(TEXT, pooling="last", normalize=False)[0], hidden[-1])
    assert np.array_equal(engine.embed(TEXT, pooling="cls", normalize=False)[0], hidden[0])
    assert np.array_equal(engine.embed(TEXT, pooling="max", normalize=False)[0], hidden.max(0))
    assert np.allclose(engine.embed(TEXT, pooling="mean", normalize=False)[0], hidden.mean(0), atol=1e-5)
    found = engine.embed(texts)
    assert found.shape == (3, 64) and np.allclose(np.linalg.norm(found, axis=1), 1)
    assert np.array_equal(found, engine.embed([engine.encode(text) for text in texts])), "as tokens"
    assert np.array_equal(found[1:2], engine.embed(TEXT)), "the file names no pooling: the last token"
    assert np.array_equal(found[1:2], engine.embed(engine.encode(TEXT), pooling="last"))


def test_the_head_sees_what_is_hidden(engine: Engine) -> None:
    tokens = engine.encode(TEXT)
    head = engine.runner.model.weights.get("output") or engine.runner.model.embeddings
    matrix = np.frombuffer(head.data, np.float32).reshape(head.shape)
    assert np.allclose(engine.hidden(tokens) @ matrix.T, engine.logits(tokens), atol=1e-3)


def test_what_cannot_be_read(engine: Engine) -> None:
    for wrong, message in ((["x"], "pooling is"), ("median", "pooling is")):
        with pytest.raises(RequestError, match=message):
            engine.embed(TEXT, pooling=wrong)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="nothing to embed"):
        engine.embed([])
    with pytest.raises(RequestError, match="list of texts"):
        engine.rerank("a", "b")
    with pytest.raises(UnsupportedModel, match="no classifier"):
        engine.rerank("a", ["b"])
    with pytest.raises(ContextTooLong, match=r"shorten it, or load the model with a larger context$"):
        engine.embed(["fine", [1] * (engine.context + 1)])
    with pytest.raises(RequestError, match="both need a token"):
        engine.score("a", "")
    with pytest.raises(RequestError, match="outputs are read of all tokens"):
        Request([1, 2], reads=range(2), truncate=True)
    assert not engine.core.running and not engine.core.waiting


def test_a_request_that_was_preempted_is_read_once(golden: Callable[[str], Path]) -> None:
    """It is computed again from the start, and what it had read before is forgotten."""
    with llamina.load(golden("stories260K.gguf"), step_tokens=16, cache_tokens=64) as small:
        tokens = [i % 500 for i in range(40)]
        alone = small.logits(tokens)
        sequence = small.submit(Request(tokens, reads=range(len(tokens))))
        small.step()
        assert 0 < sequence.computed < len(tokens) and sequence.rows
        first = small.submit(Request(tokens[::-1], reads=range(len(tokens)), priority=1))
        while small.core.running or small.core.waiting:
            small.step()
        assert np.array_equal(np.concatenate(sequence.rows), alone)
        assert len(np.concatenate(first.rows)) == 40
