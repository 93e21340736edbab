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
from cuda_runs import compiled, interpret  # noqa: E402 (Triton's kernels)

from llamina.backends.cuda.backend import InterpreterBackend  # noqa: E402
from llamina.backends.cuda.bucket import Bucket  # noqa: E402
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


@pytest.mark.parametrize("count", [1, 3, 8])
def test_attention_has_one_kernel_for_any_number_of_tokens(count: int) -> None:
    """A compiler may round otherwise where constants differ; only the number of splits does."""
    names = ("attention.attend", "endings.turn_and_keep")
    found = []
    for tokens, sequences in ((64, 1), (count, 1), (count, count)):
        program, batch = compiled(block("F16"), backend=InterpreterBackend(exact=True))
        bucket = Bucket.fit(batch, tokens, 1, sequences, 64)
        launches = program._lower(bucket, program._readers).launches
        mine = [dict(x.kernel.constants) | {"warps": x.kernel.warps} for x in launches if x.kernel.name in names]
        found.append([{key: value for key, value in each.items() if key != "SPLITS"} for each in mine])
        program.close()
    assert len(found[0]) > 1 and found[0] == found[1] == found[2]


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
