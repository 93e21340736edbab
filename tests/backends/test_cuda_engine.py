"""The engine on the GPU's programs, in Triton's interpreter: steps launched ahead, tokens sampled by kernels."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plans import error, float_weight, whole

import llamina
from llamina.backends.base import Backend, Capacity
from llamina.backends.cuda import InterpreterBackend
from llamina.backends.parallel import ParallelBackend
from llamina.backends.reference import ReferenceBackend
from llamina.ops import Value, embed, gated, linear, norm, pick
from llamina.ops.batch import Batch
from llamina.plan import record
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


def test_two_ranks() -> None:
    """Graphs end where ranks meet."""
    rng = np.random.default_rng(1)
    shapes = {"token_embd": (8, 32), "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32), "blk.0.ffn_down": (32, 64)}
    w = {name: float_weight(f"{name}.weight", rng.standard_normal(shape)) for name, shape in shapes.items()}

    def forward(tokens: Value, positions: Value) -> Value:
        x = embed(tokens, w["token_embd"])
        gate, up = (linear(x, w[f"blk.0.ffn_{part}"]) for part in ("gate", "up"))
        return pick(norm(x + linear(gated(gate, up, "silu"), w["blk.0.ffn_down"]), None, 1e-5))

    found, batch, plan = [], Batch(4, 4, 1, 1), record(forward)
    ranks = ParallelBackend([InterpreterBackend(), InterpreterBackend()], together=True)
    backends: list[Backend] = [ReferenceBackend(), ranks]
    for backend in backends:
        program = backend.compile(plan, batch, Capacity(1, 1))
        found.append(program.launch(batch.fill([whole([3, 1, 4])])).result().copy())
        program.close()
    assert error(found[1], found[0]) < 1e-10


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
