"""Every operation on the GPU, by Triton's interpreter, against its NumPy meaning: odd sizes, views, chunks."""

import numpy as np
import pytest
from plans import error, pieces, run, whole
from test_cpu_ops import PLANS, TOKENS, _attention

from llamina.backends import KV_TYPES, KvType
from llamina.ops import Attention
from skips import import_peer

import_peer("triton")
from cuda_runs import interpret  # noqa: E402 (Triton's kernels)

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
