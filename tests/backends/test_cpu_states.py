"""Recurrent states on the CPU: a slot begins empty, and may be copied, whatever the sizes."""

import numpy as np
import numpy.typing as npt
import pytest
from plans import Forward, float_weight, run, whole

from llamina.backends import Capacity, compile_plan
from llamina.ops import Value, activate, convolve, embed, heads, linear_attend, pick, reshape, scan
from llamina.ops.batch import Batch, Span
from llamina.plan import record

RNG = np.random.default_rng(5)
TABLE, KERNEL = RNG.standard_normal((32, 21)), RNG.standard_normal((21, 4))
TOKENS = [int(t) for t in RNG.integers(0, 31, 20)]
TABLE[31] = np.nan


def embedded(tokens: Value) -> Value:
    return embed(tokens, float_weight("token_embd.weight", TABLE))


def _convolve(tokens: Value, positions: Value) -> Value:
    return pick(convolve(embedded(tokens), float_weight("kernel", KERNEL), 0))


def _scan(tokens: Value, positions: Value) -> Value:
    x = embedded(tokens)
    return pick(scan(x, activate(x, "softplus"), float_weight("a", -np.ones((21, 21))), x, x, 0))


def _linear_attend(tokens: Value, positions: Value) -> Value:
    x, decay = heads(embedded(tokens), 3), float_weight("decay", [[0.5], [0.7], [0.9]])
    return pick(reshape(linear_attend(x, x, x, decay, 0), 21))


PLANS: dict[str, Forward] = {"convolve": _convolve, "scan": _scan, "linear_attend": _linear_attend}


@pytest.mark.parametrize("name", PLANS)
def test_a_reused_slot_keeps_nothing(name: str) -> None:
    clean = run("cpu", PLANS[name], [[whole(TOKENS)]])
    dirty = run("cpu", PLANS[name], [[whole([31, 31])], [whole(TOKENS)]])
    assert np.array_equal(dirty[2:], clean)


@pytest.mark.parametrize("name", PLANS)
def test_a_copied_slot_goes_on_as_its_source_would(name: str) -> None:
    """Slots beside each other, so that a wrong size would show."""
    want = run("cpu", PLANS[name], [[whole(TOKENS)]])
    batch = Batch(32, 32, 8, 16)
    program = compile_plan("cpu", record(PLANS[name]), batch, Capacity(16, 8, "f32", 2))

    def step(tokens: list[int], position: int, slot: int) -> npt.NDArray[np.float32]:
        return program.run(batch.fill([Span(tokens, position, [0, 1], slot, range(len(tokens)))])).copy()

    step(TOKENS[:7], 0, 3)
    program.states.copy("slot", 3, 5)
    for slot in (2, 4, 6):
        step([31], 0, slot)
    for slot in (5, 3):
        assert np.array_equal(step(TOKENS[7:], 7, slot), want[7:])
    program.close()
