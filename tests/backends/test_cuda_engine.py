"""The engine on the GPU's programs, in Triton's interpreter: steps launched ahead, tokens sampled by kernels."""

from collections.abc import Callable
from pathlib import Path

import pytest

import llamina
from skips import import_peer

import_peer("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn


@pytest.mark.thorough
def test_answers_are_the_references(golden: Callable[[str], Path]) -> None:
    """A greedy sequence and a sampled one at once."""
    found = []
    for backend in ("reference", "interpreter"):
        with llamina.load(golden("stories260K.gguf"), backend=backend, context=32, kv_type="f32") as engine:
            options = [{"temperature": 0.0}, {"seed": 3}]
            streams = [engine.stream("Once", max_tokens=3, speculate="off", **o) for o in options]
            found.append([stream.result().tokens for stream in streams])
    assert found[0] == found[1]
