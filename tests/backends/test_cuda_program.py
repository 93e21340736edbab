"""Programs of the GPU, by Triton's interpreter: memory, states, adapters, what is refused."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from plans import error, run, whole
from test_cpu_ops import PLANS, TOKENS, constant, elementwise, project

from llamina.backends.base import Capacity, check_kv_type
from llamina.errors import KernelError, RequestError
from llamina.ops import LowRank, Step, Value, embed, linear, pick, scale
from llamina.ops.batch import Applied, Batch
from llamina.plan import adapt, record
from skips import import_peer

import_peer("triton")
from cuda_runs import compiled  # noqa: E402 (Triton's kernels)

from llamina.backends.cuda import InterpreterBackend  # noqa: E402
from llamina.backends.cuda.driver import open_driver  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn


def test_all_memory_is_given_back() -> None:
    """Programs share weights and states; the last one that is closed frees them."""
    backend = InterpreterBackend()
    first, batch = compiled(PLANS["scan"], backend=backend)
    first.launch(batch.fill([whole(TOKENS[:3])]))
    alone = len(backend.device._memory)  # type: ignore[attr-defined]
    second = backend.compile(first._plan, batch, Capacity(64, 8, "f32"), None, first)
    assert second.states is first.states
    first.close()
    assert len(backend.device._memory) == alone  # type: ignore[attr-defined]
    second.launch(batch.fill([whole(TOKENS[:3])]))
    second.close()
    assert not backend.device._memory  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["attention", "scan"])
def test_states_move(name: str) -> None:
    """A page or a slot that is read and written elsewhere, or copied, is where a sequence goes on."""
    program, batch = compiled(PLANS[name])
    program.launch(batch.fill([whole(TOKENS[:5])]))
    unit = "page" if name == "attention" else "slot"
    data = program.states.read(unit, [0])
    assert data.shape == (1, program.states.size(unit)) and data.any()
    program.states.write(unit, [5], data)
    program.states.copy(unit, [(5, 6)])
    last = whole(TOKENS[:6])._replace(tokens=TOKENS[5:6], position=5, outputs=[0], pages=[6], slot=6)
    got = program.launch(batch.fill([last])).result()
    assert error(got, run("reference", PLANS[name], [[whole(TOKENS[:6])]])[-1:]) < 1e-9
    program.close()


def test_the_canonical_layout_is_the_references() -> None:
    program, batch = compiled(PLANS["attention"])
    program.launch(batch.fill([whole(TOKENS[:5])]))
    from llamina.backends import backend

    truth = backend("reference").compile(record(PLANS["attention"]), batch, Capacity(64, 8, "f32"))
    truth.launch(batch)
    found = [states.export("page", [0]).view(np.float32) for states in (program.states, truth.states)]
    assert np.allclose(*found, atol=1e-6)
    program.close()


def test_adapters() -> None:
    """What an adapter adds to an embedding and to a matrix, for one of two sequences and from a position on."""
    table, matrix = constant("table", 32, 24), constant("matrix", 20, 24)

    def forward(tokens: Value, positions: Value) -> Value:
        return linear(pick(embed(tokens, table)), matrix)

    plan, batch = adapt(record(forward), ["table", "matrix"]), Batch(64, 64, 8, 16)
    rng = np.random.default_rng(1)

    def some(*shape: int) -> np.ndarray:  # type: ignore[type-arg]
        return rng.standard_normal(shape).astype(np.float32)

    pairs = {"table": LowRank(some(32, 3), some(24, 3), 0.5), "matrix": LowRank(some(18, 24), some(20, 18), 2.0)}
    spans = [whole([1, 2, 3]), whole([4, 5, 6], 8, 1)._replace(adapters=[Applied(2, 0.7, start=1)])]
    results = []
    from llamina.backends import backend

    for device in (backend("reference"), InterpreterBackend()):
        program = device.compile(plan, batch, Capacity(16, 8, "f32"))
        plain = program.launch(batch.fill(spans)).result().copy()
        program.adapt(2, pairs)
        results += [plain, program.launch(batch.fill(spans)).result().copy()]
        program.adapt(2, {})
        assert np.array_equal(program.launch(batch.fill(spans)).result(), plain)
        program.close()
    assert error(results[2], results[0]) < 1e-9 and error(results[3], results[1]) < 1e-9
    assert np.allclose(results[1][:4], results[0][:4]) and error(results[1], results[0]) > 1e-2


def test_every_step_can_be_seen() -> None:
    program, batch = compiled(elementwise(lambda x: scale(project(x, 8, "w"), 2.0)))
    seen = dict(program.trace(batch.fill([whole(TOKENS[:3])])))
    values = [next(iter(outputs.values())) for outputs in seen.values()]
    assert [step.op for step in program._plan.steps] == ["embed", "linear", "scale", "pick"]
    assert np.allclose(values[2], 2 * values[1])
    program.close()


def test_what_is_not_there_is_refused() -> None:
    plan = record(PLANS["scale"])
    odd = Step("juggle", plan.steps[1].inputs, (), plan.steps[1].outputs)
    with pytest.raises(KernelError, match="no kernel for juggle"):
        InterpreterBackend().check(replace(plan, steps=(plan.steps[0], odd, *plan.steps[2:])))
    older = InterpreterBackend()
    older.device.fp8 = False  # type: ignore[misc]
    with pytest.raises(RequestError, match=r"kv_type is 'fp8': .* it must be f16 or f32 or bf16 or q8_0 or q4_0"):
        check_kv_type(older, "fp8")
    with pytest.raises(RequestError, match="offload"):
        InterpreterBackend(offload="budget")


def test_without_a_driver() -> None:
    open_driver.cache_clear()
    with patch("ctypes.CDLL", side_effect=OSError("no such file")), pytest.raises(RequestError, match="NVIDIA driver"):
        open_driver()


def test_a_step_that_fails_on_the_way_leaves_nothing_behind() -> None:
    """Ranks that do not meet, say: the next step computes its own batch, not an earlier one."""
    program, batch = compiled(PLANS["add"])
    spans = [[whole(TOKENS[start : start + 3])] for start in (0, 3, 6)]
    program.launch(batch.fill(spans[0])).result()
    ((bucket, (entry,)),) = program._graphs.items()
    with patch.dict(program._graphs, {bucket: [(entry[0], "meets nobody")]}), pytest.raises(AttributeError):
        program.launch(batch.fill(spans[1]))
    got = program.launch(batch.fill(spans[2])).result().copy()
    program.close()
    assert error(got, run("reference", PLANS["add"], [spans[2]])) < 1e-9
