"""Results for other libraries by DLPack: tensors over the same memory."""

import builtins
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine
from llamina.backends import Finished
from llamina.engine.tasks import torch_tensors
from llamina.errors import RequestError
from skips import import_peer

TEXT = "Once upon a time"


def test_arrays_speak_dlpack(engine: Engine) -> None:
    for array in (engine.logits(TEXT), engine.hidden(TEXT), engine.embed([TEXT, "The end"])):
        other = np.from_dlpack(array)
        assert np.shares_memory(other, array) and array.flags.c_contiguous and array.flags.writeable


def test_tensors(engine: Engine) -> None:
    torch = import_peer("torch")
    logits, vectors = engine.logits_torch(TEXT), engine.embeddings_torch([TEXT, "The end"], pooling="mean")
    assert isinstance(logits, torch.Tensor) and logits.dtype == torch.float32
    assert np.array_equal(logits.cpu().numpy(), engine.logits(TEXT))
    assert np.array_equal(vectors.cpu().numpy(), engine.embed([TEXT, "The end"], pooling="mean"))
    assert engine.logits_torch([1, 5, 9]).shape == (3, engine.tokenizer.vocab_size)


class Fake(ModuleType):
    """A stand-in for PyTorch on the host and on a GPU, over NumPy."""

    from_dlpack = staticmethod(np.from_dlpack)
    cat = staticmethod(lambda parts: Tensor(np.concatenate([part.numbers for part in parts])))

    def __init__(self) -> None:
        super().__init__("torch")
        self.waits: list[tuple[str, str]] = []  # who waits for whom
        self.cuda = SimpleNamespace(
            ExternalStream=lambda address, device: Stream(f"stream {address}", self.waits),
            current_stream=lambda device: Stream("own", self.waits),
        )

    def device(self, kind: str, index: int) -> str:
        return f"{kind}:{index}"

    def as_tensor(self, array: Any, device: str) -> Any:
        assert device == "cuda:0"
        return Tensor(array.numbers)


@dataclass
class Tensor:
    """On a GPU."""

    numbers: Any
    device: str = "cuda:0"

    def __getitem__(self, rows: slice) -> "Tensor":
        return Tensor(self.numbers[rows])

    def clone(self) -> "Tensor":
        return Tensor(self.numbers.copy())


@dataclass
class Stream:
    name: str
    waits: list[tuple[str, str]]

    def wait_stream(self, other: "Stream") -> None:
        self.waits.append((self.name, other.name))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    found = Fake()
    monkeypatch.setitem(sys.modules, "torch", found)
    return found


@pytest.mark.cpu_only
def test_a_tensor_is_made_of_the_arrays_memory(engine: Engine, fake: Fake) -> None:
    array = engine.logits(TEXT)
    assert np.shares_memory(torch_tensors.tensor_of(array), array)  # type: ignore[arg-type]
    assert np.array_equal(engine.logits_torch(TEXT), array)
    assert np.array_equal(engine.embeddings_torch(TEXT), engine.embed(TEXT))
    assert fake.waits == []


@pytest.mark.cpu_only
def test_logits_are_taken_from_a_device(stories: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are copied there in every step, after its work and before the next; others get theirs as ever."""
    tokens = [1, *range(5, 40)]
    monkeypatch.setattr(Finished, "on_device", lambda self: SimpleNamespace(numbers=self.logits, stream=7, device=0))
    with llamina.load(stories, threads=1, context=64, step_tokens=16) as engine:
        expected = engine.logits(tokens)
        beside = engine.stream("The cat", max_tokens=30, temperature=0)
        next(beside)
        found = engine.logits_torch(tokens)
        assert isinstance(found, Tensor) and np.array_equal(found.numbers, expected)
        assert fake.waits[:2] == [("own", "stream 7"), ("stream 7", "own")] and len(fake.waits) >= 6
        assert beside.result().text == engine.generate("The cat", max_tokens=30, temperature=0).text


def test_without_pytorch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RequestError, match="pip install torch"):
        engine.logits_torch(TEXT)
