"""The engine on the GPU's programs, in Triton's interpreter: steps launched ahead, tokens sampled by kernels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import llamina
from skips import import_peer

import_peer("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn


def test_answers_are_the_references(golden: Callable[[str], Path]) -> None:
    """A greedy sequence and a sampled one at once."""
    found = []
    for backend in ("reference", "interpreter"):
        with llamina.load(golden("stories260K.gguf"), backend=backend, context=32, kv_type="f32") as engine:
            options = [{"temperature": 0.0}, {"seed": 3}]
            streams = [engine.stream("Once", max_tokens=3, speculate="off", **o) for o in options]
            found.append([stream.result().tokens for stream in streams])
    assert found[0] == found[1]


def test_two_ranks(files: Callable[[str], Path]) -> None:
    """Graphs end where ranks meet."""
    found = []
    for options in ({"backend": "reference"}, {"backend": "interpreter", "tensor_parallel": 2}):
        with llamina.load(files("llama-dense"), context=16, kv_type="f32", max_sequences=1, **options) as engine:
            found.append(engine.logits([1, 25]))
    assert np.square(found[0] - found[1]).sum() / np.square(found[0]).sum() < 1e-10


def test_the_first_layers_on_the_cpu(golden: Callable[[str], Path]) -> None:
    """The GPU's half begins with rows that the CPU has computed, and samples."""
    found = []
    for options in ({"backend": "reference"}, {"backend": "interpreter", "gpu_layers": 2}):
        with llamina.load(golden("stories260K.gguf"), context=32, kv_type="f32", **options) as engine:
            found.append(engine.logits([1, 25, 310, 44, 9]))
            if options["backend"] == "interpreter":
                assert engine.runner.backend.name == "cpu+interpreter"
                assert engine.runner.program.stages and not engine.runner.program.ahead
                token = engine.generate([1, 25, 310, 44, 9], max_tokens=1, temperature=0.0, speculate="off").tokens
    assert np.square(found[0] - found[1]).sum() / np.square(found[0]).sum() < 1e-10
    assert token == [int(found[0][-1].argmax())]
