"""States of sequences: begun empty, copied, saved, and moved between backends in the canonical layout."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from plans import Forward, float_weight, run, whole

from llamina.backends import KV_TYPES, Capacity, KvType, Program, backend
from llamina.backends.base import UNITS, tensors
from llamina.backends.cpu import CpuBackend
from llamina.backends.kv_types import BLOCKS, FLOATS
from llamina.ops import (
    Attention,
    Ngrams,
    Value,
    activate,
    attend,
    attend_latent,
    convolve,
    embed,
    flat,
    heads,
    linear_attend,
    ngrams,
    pick,
    pool,
    reshape,
    scan,
)
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import record
from llamina.quant import decode, encode
from llamina.quant.e4m3 import decode_e4m3

RNG = np.random.default_rng(5)
TABLE, KERNEL = RNG.standard_normal((32, 21)), RNG.standard_normal((21, 4))
TOKENS = [int(t) for t in RNG.integers(0, 31, 40)]
TABLE[31] = np.nan
WINDOW = 18


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


def _pool(tokens: Value, positions: Value) -> Value:
    x = embedded(tokens)
    return pick(pool(x, x, float_weight("weights", KERNEL.T[:3]), 0))


def _ngrams(tokens: Value, positions: Value) -> Value:
    rows = ngrams(tokens, Ngrams((3, 5, 7), (11, 13), (0, 11), 31), 0)
    return pick(flat(embed(rows, float_weight("token_embd.weight", TABLE))))


def _attend(tokens: Value, positions: Value) -> Value:
    """One layer that sees all, and one with a window."""
    x = heads(embedded(tokens), 3)
    x = attend(x, x, x, 0, Attention(0.3))
    return pick(flat(attend(x, x, x, 1, Attention(0.3, window=WINDOW))))


def _latent(tokens: Value, positions: Value) -> Value:
    x = heads(embedded(tokens), 1)
    return pick(flat(attend_latent(x, x, 13, 0, Attention(0.3))))


RECURRENT: dict[str, Forward] = {
    "convolve": _convolve, "scan": _scan, "linear_attend": _linear_attend, "pool": _pool, "ngrams": _ngrams,
}  # fmt: skip
PAGED: dict[str, Forward] = {"attend": _attend, "latent": _latent}


@pytest.mark.parametrize("name", RECURRENT)
def test_a_reused_slot_keeps_nothing(name: str) -> None:
    clean = run("cpu", RECURRENT[name], [[whole(TOKENS)]])
    dirty = run("cpu", RECURRENT[name], [[whole([30 if name == "ngrams" else 31] * 2)], [whole(TOKENS)]])
    assert np.array_equal(dirty[2:], clean)


class Memory:
    """A program with a batch; pages, window pages and slots are chosen by the caller."""

    def __init__(self, device: str, name: str, kv_type: KvType) -> None:
        self.plan = record({**RECURRENT, **PAGED}[name])
        self.batch = Batch(64, 64, 8, 16)
        self.capacity = Capacity(16, 8, kv_type, window_pages=9)
        options = {} if device == "interpreter" else {"threads": 2}
        self.program: Program = backend(device, **options).compile(self.plan, self.batch, self.capacity)

    def step(
        self, tokens: list[int], position: int, slot: int = 0, pages: Any = (), windows: Any = ()
    ) -> npt.NDArray[np.float32]:
        span = Span(tokens, position, pages or [4, 5, 6], slot, range(len(tokens)), window_pages=windows or [3, 2, 1])
        return self.program.launch(self.batch.fill([span])).result().copy()


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("way", ["copy", "write", "restore"])
def test_a_copied_slot_goes_on_as_its_source_would(name: str, way: str) -> None:
    """Slots beside each other, so that a wrong size would show."""
    want = run("cpu", RECURRENT[name], [[whole(TOKENS)]])
    memory = Memory("cpu", name, "f32")
    states = memory.program.states
    memory.step(TOKENS[:7], 0, 3)
    if way == "copy":
        states.copy("slot", [(3, 0), (0, 5)])  # in this order
    elif way == "write":
        states.write("slot", [5, 1], states.read("slot", [3, 0]))
    else:
        states.restore("slot", [5, 1], states.export("slot", [3, 0]))
    for slot in (2, 4, 6):
        memory.step([30 if name == "ngrams" else 31], 0, slot)
    for slot in (5, 3):
        assert np.array_equal(memory.step(TOKENS[7:], 7, slot), want[7:])
    memory.program.close()


def moved(source: Memory, target: Memory, exact: bool = True) -> None:
    """All states of a sequence, to other pages and another slot."""
    for unit, indexes, others in (
        ("page", [4, 5, 6], [9, 7, 8]),
        ("window", [3, 2, 1], [0, 8, 4]),
        ("slot", [0], [6]),
    ):
        data = source.program.states.export(unit, indexes)
        assert data.shape == (len(indexes), target.program.states.exported_size(unit))
        target.program.states.restore(unit, others, data)
        if exact:
            assert np.array_equal(target.program.states.export(unit, others), data), "nothing is lost on the way"


@pytest.mark.parametrize("kv_type", CpuBackend.kv_types)
@pytest.mark.parametrize("name", PAGED)
def test_pages_move_between_programs(name: str, kv_type: KvType) -> None:
    first, second = (Memory("cpu", name, kv_type) for _ in range(2))
    want = np.concatenate([first.step(TOKENS[:20], 0), first.step(TOKENS[20:], 20)])
    first.step(TOKENS[:20], 0)
    moved(first, second)
    assert np.array_equal(second.step(TOKENS[20:], 20, 6, [9, 7, 8], [0, 8, 4]), want[20:])


@pytest.mark.parametrize(
    ("name", "kv_type"), [*((p, t) for p in PAGED for t in CpuBackend.kv_types), *((r, "f16") for r in RECURRENT)]
)
def test_states_move_between_backends(name: str, kv_type: KvType) -> None:
    """From the CPU to the reference and back, with the same bits; the reference goes on as the CPU does."""
    first, second = (Memory("cpu", name, kv_type) for _ in range(2))
    between = Memory("reference", name, kv_type)
    first.step(TOKENS[:20], 0)
    moved(first, between, exact=kv_type != "q4_0")  # zero bytes, where nothing was written, come back as a block of 0.0
    for unit, indexes, others in (("page", [9, 7, 8], [4, 5, 6]), ("window", [0, 8, 4], [3, 2, 1]), ("slot", [6], [0])):
        second.program.states.restore(unit, others, between.program.states.export(unit, indexes))
    want = first.step(TOKENS[20:], 20)
    assert np.array_equal(second.step(TOKENS[20:], 20), want)
    near = between.step(TOKENS[20:], 20, 6, [9, 7, 8], [0, 8, 4])
    assert np.allclose(near, want, rtol=1e-4, atol=0.1 if kv_type in BLOCKS else 1e-5)


@pytest.mark.parametrize(
    ("device", "kv_type"), [*(("cpu", t) for t in CpuBackend.kv_types), *(("reference", t) for t in KV_TYPES)]
)
def test_the_canonical_layout(device: str, kv_type: KvType) -> None:
    """Pages as the documentation says: [heads, PAGE, dim], keys before values, or blocks of ggml."""
    memory = Memory(device, "attend", kv_type)
    memory.step(TOKENS[:20], 0)
    check_layout(memory, kv_type)


def check_layout(memory: Memory, kv_type: KvType) -> None:
    """Page 4 holds the first keys and values of TOKENS in the canonical layout."""
    page = memory.program.states.export("page", [4])[0]
    parts = [t for t in tensors(memory.plan.states, memory.capacity) if t.unit == "page"]
    assert [t.shape for t in parts] == [(3, PAGE, 7)] * 2 and page.nbytes == sum(t.nbytes for t in parts)
    keys = page[: parts[0].nbytes].reshape(3, PAGE, -1)
    want = TABLE[TOKENS[:PAGE]].astype(np.float32).reshape(PAGE, 3, 7).swapaxes(0, 1)
    if kv_type in FLOATS:
        assert np.array_equal(keys, encode(want, kv_type.upper()))
    elif kv_type == "fp8":
        scale = np.ascontiguousarray(keys[..., :2]).view(np.float16)
        largest = np.abs(want).max(-1, keepdims=True)
        enough = (largest <= np.float32(464) * scale) & (largest > np.float32(224) * scale)  # 464 is rounded to 448
        assert enough.all(), "the least power of two"
        assert np.allclose(decode_e4m3(keys[..., 2:]) * scale, want, rtol=2**-4, atol=2**-10 * float(scale.max()))
    else:
        assert np.allclose(decode(keys, kv_type.upper())[..., :7], want, atol=0.02 if kv_type == "q8_0" else 0.4)


def test_sizes() -> None:
    memory = Memory("cpu", "attend", "f16")
    states = memory.program.states
    assert [states.size(unit) for unit in UNITS] == [2 * 3 * PAGE * 8 * 2] * 2 + [0], "padded to whole registers"
    assert [states.exported_size(unit) for unit in UNITS] == [2 * 3 * PAGE * 7 * 2] * 2 + [0]
    assert states.read("page", [1, 2]).shape == (2, states.size("page"))
