"""Programs whose bits do not depend on the step, by Triton's interpreter. benchmarks/gpu.py compares the bits."""

import numpy as np
import pytest
from plans import error, pieces, run, whole
from test_cpu_ops import PLANS, TOKENS, _attention
from test_cuda_blocks import block

from llamina.backends import backend
from llamina.errors import RequestError
from llamina.ops import Attention
from skips import import_peer

import_peer("triton")
from cuda_runs import interpret  # noqa: E402 (Triton's kernels)

from llamina.backends.cuda.lowering import attention  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn
KINDS = ("attention", "attention, sinks", "attention, biases by distance", "attention, window", "latent attention")


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PART", 32)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("name", [name for name in KINDS if name in PLANS])
def test_keys_in_parts_that_are_joined_in_order(name: str) -> None:
    """Many parts in one program (a prompt), and each part a split (a token)."""
    tokens = (TOKENS * 4)[:50]
    first, last = whole(tokens[:-1]), whole(tokens)
    steps = [[first], [last._replace(tokens=tokens[-1:], position=len(tokens) - 1, outputs=[0])]]
    got, want = interpret(PLANS[name], steps, exact=True), run("reference", PLANS[name], steps)
    assert np.isfinite(got).all()
    assert error(got, want) < 1e-9


@pytest.mark.usefixtures("short_parts")
def test_a_window_begins_in_the_middle_of_a_part() -> None:
    plan, tokens = _attention(Attention(0.3, window=20)), (TOKENS * 4)[:50]
    want = run("reference", plan, [[whole(tokens)]])
    assert error(interpret(plan, [[whole(tokens)]], exact=True), want) < 1e-9
    assert error(interpret(plan, pieces(tokens, 49), exact=True), want) < 1e-9


@pytest.mark.parametrize("kind", ["Q8_0", "F16", "F32"])
def test_one_token_is_computed_like_several(kind: str) -> None:
    """Tensor cores and float16 activations, where dot products of 8-bit ones would be."""
    tokens = [3, 1, 4]
    want = run("reference", block(kind), [[whole(tokens)]])
    assert error(interpret(block(kind), pieces(tokens, 1), exact=True), want) < 1e-5


def test_backends_without_a_gpu_are_always_exact() -> None:
    assert backend("reference", exact=True).name == "reference"
    with pytest.raises(RequestError, match="'exakt'"):
        backend("reference", exakt=True)
