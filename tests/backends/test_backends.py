"""Backends by name: their options, what they can run, and what they say of themselves."""

from dataclasses import replace

import numpy as np
import pytest
from plans import block_weight, float_weight, whole

from llamina.backends import BACKENDS, Capacity, backend
from llamina.errors import KernelError, RequestError
from llamina.ops import Step, Value, embed, linear, pick
from llamina.ops.batch import Batch
from llamina.plan import Plan, record


def plan(kind: str = "Q8_0") -> Plan:
    table = float_weight("token_embd.weight", np.ones((4, 32)))

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(linear(embed(tokens, table), block_weight("blk.0.attn_q.weight", kind, (8, 32))))

    return record(forward)


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "cuda"])
def test_a_step_is_launched_and_waited_for(name: str) -> None:
    batch = Batch(8, 8, 2, 4)
    program = backend(name).compile(plan(), batch, Capacity(4, 2))
    pending = program.launch(batch.fill([whole([0, 1, 2])]))
    assert pending.result().shape == (3, 8) and np.array_equal(pending.result()[0], pending.result()[2])
    program.close()


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "cuda"])
def test_an_unknown_operation_is_named(name: str) -> None:
    known = plan()
    odd = replace(known, steps=(*known.steps, Step("juggle", (), (), ())))
    with pytest.raises(KernelError, match="juggle"):
        backend(name).check(odd)
    with pytest.raises(KernelError, match="juggle"):
        backend(name).compile(odd, Batch(8, 8, 2, 4), Capacity(4, 2))
    backend(name).check(known)


def test_a_format_without_kernel_is_named() -> None:
    with pytest.raises(KernelError, match=r"blk\.0\.attn_q\.weight is Q8_1, which has no kernel"):
        backend("cpu").check(plan("Q8_1"))
    backend("reference").check(plan("Q8_1"))
    assert "Q8_1" not in backend("cpu").formats and "Q8_1" in backend("reference").formats


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "abacus"}, "'abacus' is not one of auto, cpu, cuda, reference"),
        ({"name": "cpu", "speed": 3}, "the cpu backend has no option 'speed'"),
        ({"name": "cpu", "threads": 0}, "at least 1"),
        ({"name": "reference", "offload": "budget", "memory_budget": 5}, "needs backend='cpu'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        backend(**options)  # type: ignore[arg-type]


def test_what_a_backend_says_of_itself() -> None:
    cpu = backend("cpu", threads=3, offload="pinned", memory_budget=1000)
    assert cpu.describe()["threads"] == "3" and cpu.describe()["offload"] == "pinned, 1000 bytes"
    assert cpu.weight_bytes(5000) == 1000 and cpu.weight_bytes(500) == 500
    assert cpu.free_bytes() > 0 and backend("cpu").weight_bytes(5000) == 5000
    assert backend("reference").describe()["numpy"] == np.__version__


def test_without_a_driver_the_gpu_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever machine this is."""
    import ctypes

    from llamina.backends.cuda.backend import open_gpu

    def missing(name: str, *args: object, **kwargs: object) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    open_gpu.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(RequestError, match=r"backend='cuda' needs an NVIDIA driver"):
        backend("cuda")
