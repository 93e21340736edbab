"""The tour, in a few seconds: open a file, load it, generate, stream, look at logits, tokenize."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.gguf import GGUF
from llamina.plan import show

TALE = ", there was a little girl named Lily. She loved to play"


@pytest.fixture(scope="module")
def engine(golden: Callable[[str], Path]) -> Iterator[llamina.Engine]:
    with llamina.load(golden("stories260K.gguf")) as found:
        yield found


def test_file(golden: Callable[[str], Path]) -> None:
    file = GGUF.open(golden("stories260K.gguf"))
    assert file.metadata["general.architecture"] == "llama"
    assert file.tensors["token_embd.weight"].shape == (512, 64)


def test_generate(engine: llamina.Engine) -> None:
    result = engine.generate("Once upon a time", temperature=0, max_tokens=16)
    assert str(result) == TALE
    assert result.finish_reason == "length" and result.usage.completion_tokens == 16


def test_stop(engine: llamina.Engine) -> None:
    result = engine.generate("Once upon a time", temperature=0, stop=["Lily"])
    assert result.text == ", there was a little girl named " and result.finish_reason == "stop"


def test_sampling(engine: llamina.Engine) -> None:
    options = {"temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "max_tokens": 20}
    one, two = (engine.generate("Once upon a time", seed=1, **options).text for _ in range(2))
    assert one == two


def test_stream(engine: llamina.Engine) -> None:
    pieces = [delta.text for delta in engine.stream("Once upon a time", temperature=0, max_tokens=16)]
    assert len(pieces) > 5 and "".join(pieces) == TALE


def test_batch(engine: llamina.Engine) -> None:
    """Several requests advance together, step by step."""
    greedy = llamina.Sampling(temperature=0)
    sequences = [
        engine.submit(llamina.Request(engine.encode(prompt), greedy, max_tokens=16))
        for prompt in ("Once upon a time", "Lily and Tom", "The sun")
    ]
    while engine.core.running or engine.core.waiting:
        engine.step()
    assert sequences[0].text == TALE
    assert all(sequence.finish_reason for sequence in sequences)


def test_logits(engine: llamina.Engine) -> None:
    tokens = engine.encode("Once upon a time")
    logits = engine.logits(tokens)
    assert logits.shape == (len(tokens), 512) and np.isfinite(logits).all()
    assert engine.tokenizer.decode([int(logits[-1].argmax())], continued=True) == ","


def test_tokenizer(golden: Callable[[str], Path]) -> None:
    tokenizer = llamina.Tokenizer.from_gguf(golden("stories260K.gguf"))
    tokens = tokenizer.encode("Once upon a time")
    assert tokens == [403, 407, 261, 378]
    assert tokenizer.decode(tokens) == "Once upon a time"


def test_plan(engine: llamina.Engine) -> None:
    lines = list(show(engine.runner.plan))
    assert "token_embd" in lines[0] and sum("attend" in line for line in lines) == engine.runner.model.config.layers


def test_an_error(engine: llamina.Engine) -> None:
    with pytest.raises(llamina.LlaminaError, match="top_p is 3"):
        engine.generate("Once", top_p=3)
