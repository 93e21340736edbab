"""Every operation on the GPU, by Triton's interpreter, against its NumPy meaning: odd sizes, views, chunks."""

import numpy as np
import pytest
from plans import error, pieces, run, whole
from test_cpu_ops import PLANS, TOKENS, _attention

from llamina.backends import KV_TYPES, KvType
from llamina.ops import Attention
from skips import import_peer

import_peer("triton")
from cuda_runs import compiled, interpret  # noqa: E402 (Triton's kernels)

from llamina.backends.cuda.backend import InterpreterBackend  # noqa: E402
from llamina.backends.cuda.bucket import Bucket  # noqa: E402
from llamina.backends.cuda.lowering import attention  # noqa: E402
from llamina.backends.cuda.memory import Buffer  # noqa: E402
from llamina.backends.cuda.shared import Shared  # noqa: E402
from llamina.backends.kv_types import FLOATS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn
FEW = TOKENS[:7]


LONG = {"attention to chosen blocks", "attention to large chosen blocks"}  # others have the same kernels


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough if name in LONG else ()) for name in PLANS]
)
def test_equals_its_meaning(name: str) -> None:
    """Tokens at once beside two other sequences, and in two steps."""
    plan, want = PLANS[name], run("reference", PLANS[name], [[whole(FEW)]])
    beside = [whole([1, 2], first_page=20, slot=1), whole(FEW, slot=3), whole([9], first_page=30, slot=2)]
    got = interpret(plan, [beside])[2:-1]
    assert np.isfinite(got).all()
    assert error(got, want) < 1e-9
    assert error(interpret(plan, pieces(FEW, 5, first_page=5, slot=2)), want) < 1e-9


@pytest.mark.parametrize("params", [{}, {"window": 4}, {"distances": 64}], ids=str)
def test_attention_both_ways(params: dict[str, int]) -> None:
    plan = _attention(Attention(0.3, causal=False, **params))  # type: ignore[arg-type]
    assert error(interpret(plan, [[whole(FEW)]]), run("reference", plan, [[whole(FEW)]])) < 1e-9


@pytest.mark.parametrize("depth", [1, 16, 40])
def test_keys_in_parts(depth: int) -> None:
    """One token after many: its keys are divided among programs and merged."""
    plan = _attention(Attention(0.3), group=3)
    tokens = (TOKENS * 2)[: depth + 1]
    first, last = whole(tokens[:-1]), whole(tokens)
    steps = [[first], [last._replace(tokens=tokens[-1:], position=depth, outputs=[0])]]
    assert error(interpret(plan, steps), run("reference", plan, steps)) < 1e-9


KEPT = {name: PLANS[name] for name in ("attention", "latent attention", "latent attention to the chosen")}
KEPT["attention, keys in two parts"] = _attention(Attention(0.1), dim=72, group=1)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("kv_type", [kind for kind in KV_TYPES if kind != "f32"])
def test_types_of_the_cache(name: str, kv_type: KvType) -> None:
    """As the reference rounds; queries and weights of attention are rounded besides, to float16 or bfloat16."""
    want = run("reference", KEPT[name], [[whole(FEW)]], kv_type=kv_type)
    got = interpret(KEPT[name], pieces(FEW, 4), kv_type)
    assert error(got, want) < (1e-4 if kv_type == "bf16" else 1e-5)


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("kv_type", [kind for kind in KV_TYPES if kind not in FLOATS])
def test_prompts_read_quantized_keys_as_floats(kv_type: KvType, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked once for all tiles of a step, or by every tile where there is no room: equal bits."""
    plan = _attention(Attention(0.3, window=window))
    (first, last), other = pieces(TOKENS[:40], 23, first_page=2), whole(TOKENS[3:12], first_page=20, slot=1)
    one = other._replace(tokens=[5], position=9, outputs=[0])
    steps = [[*first, other], [*last, one]]
    want = interpret(plan, steps, kv_type)
    monkeypatch.setattr(attention, "TILES", 0)
    assert np.array_equal(interpret(plan, steps, kv_type), want)


@pytest.mark.parametrize(
    ("tokens", "sequences", "exact", "unpacks"),
    [(64, 1, False, 2), (64, 8, False, 0), (1, 1, False, 0), (64, 1, True, 0)],
    ids=["prompt", "short prompts", "token", "exact"],
)
def test_who_unpacks(tokens: int, sequences: int, exact: bool, unpacks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long prompts, keys and values apart; a token reads each key once, and exact bits are those of a token alone."""
    monkeypatch.setattr(attention, "TILES", 2)
    program, batch = compiled(PLANS["attention"], "q8_0", InterpreterBackend(exact=exact))
    launches = program._lower(Bucket.fit(batch, tokens, 1, sequences, 64), program._readers).launches
    program.close()
    assert [launch.kernel.name for launch in launches].count("kv_cache.unpack") == unpacks


@pytest.mark.parametrize("short", ["memory", "room"])
def test_without_room_nothing_is_unpacked(short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "TILES", 0)
    want = interpret(PLANS["attention"], [[whole(FEW)]], "q8_0")
    if short == "room":
        monkeypatch.setattr(attention, "UNPACKED", 0)
    else:
        monkeypatch.setattr(Shared, "scratch", lambda self, nbytes: None)
    assert np.array_equal(interpret(PLANS["attention"], [[whole(FEW)]], "q8_0"), want)


def test_nothing_is_read_that_was_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window begins within a block of keys; what earlier steps left in the memory may be no numbers."""
    plan, scratch = _attention(Attention(0.3, window=9)), Shared.scratch
    steps = [*pieces(TOKENS + TOKENS[:29], 40)]

    def spoilt(self: Shared, nbytes: int) -> Buffer | None:
        if (room := scratch(self, nbytes)) is not None:
            self.device.write(room.address, np.full(room.nbytes // 2, np.nan, np.float16))
        return room

    want = interpret(plan, steps, "q8_0")
    monkeypatch.setattr(attention, "TILES", 0)
    monkeypatch.setattr(Shared, "scratch", spoilt)
    assert np.array_equal(interpret(plan, steps, "q8_0"), want)
