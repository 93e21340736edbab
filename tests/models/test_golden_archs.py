"""Every architecture against llama.cpp's logits for the same tiny model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import llamina
from golden_facts import SPECS
from llamina.engine import Request
from llamina.errors import CapacityError, RequestError

Files = Callable[[str], Path]
NAMES = sorted(SPECS)
DEEP = {"gemma3n-shared": 1e-5}  # 22 layers, with two GELUs in each, which llama.cpp has as a table in F16


def nmse(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_llama_cpp_logits(name: str, backend: str, files: Files, truth: dict[str, npt.NDArray[np.float32]]) -> None:
    with llamina.load(files(name), backend=backend, kv_type="f32", threads=2) as engine:
        assert nmse(engine.logits(truth[f"{name}.tokens"]), truth[name]) < DEEP.get(name, 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_however_it_is_cut(name: str, files: Files, truth: dict[str, npt.NDArray[np.float32]]) -> None:
    """Whole, in chunks, token by token; one thread or two; alone or beside others.

    A model that reads both ways cannot be cut and says so.
    """
    tokens = [int(t) for t in truth[f"{name}.tokens"]]
    with llamina.load(files(name), threads=2) as engine:
        whole = engine.logits(tokens)
        sequences = [engine.submit(Request(tokens[i:], reads=range(len(tokens) - i))) for i in (20, 0, 7)]
        while any(s.finish_reason is None for s in sequences):
            engine.step()
        assert np.array_equal(np.concatenate(sequences[1].rows), whole)
    for chunk in (1, 3, 16):
        with llamina.load(files(name), threads=1, step_tokens=chunk) as engine:
            if engine.runner.model.causal:
                assert np.array_equal(engine.logits(tokens), whole)
            else:
                with pytest.raises(CapacityError, match="one step"):
                    engine.logits(tokens)


def test_reading_both_ways_writes_nothing(files: Files) -> None:
    with llamina.load(files("dream-dense"), backend="reference") as engine:
        with pytest.raises(RequestError, match="both ways"):
            engine.generate([1, 2, 3])
        early = engine.logits([1, 2, 3, 4])[0]
        assert not np.array_equal(early, engine.logits([1, 2, 3, 5])[0]), "the first token sees the last"
