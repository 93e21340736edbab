"""Whole blocks on the GPU, by Triton's interpreter: what is fused comes to what the plan says."""

import numpy as np
import pytest
from plans import Forward, error, float_weight, pieces, run, whole

from llamina.backends import KV_TYPES, KvType
from llamina.ops import (
    Attention,
    Rope,
    Routing,
    Value,
    Weight,
    add,
    attend,
    embed,
    expert_linear,
    flat,
    gated,
    heads,
    linear,
    mix,
    norm,
    pick,
    rope,
    route,
)
from skips import import_peer

import_peer("triton")
from cuda_runs import compiled, interpret  # noqa: E402 (Triton's kernels)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn
TOKENS = [3, 1, 4, 1, 5]
DIM, WIDTH = 32, 128


def weight(kind: str, name: str, *shape: int) -> Weight:
    values = np.random.default_rng(len(name)).standard_normal(shape) / np.sqrt(shape[-1])
    return float_weight(name, values, kind)


def block(
    kind: str, *, value_kind: str = "", bias: bool = False, up_first: bool = False, shared: bool = False
) -> Forward:
    """Attention of 4 heads and a gated feed-forward; `shared`: others read the norms too."""
    table, q, k = weight(kind, "t", 16, WIDTH), weight(kind, "qq", 4 * DIM, WIDTH), weight(kind, "kkk", 2 * DIM, WIDTH)
    v, o = weight(value_kind or kind, "vvvv", 2 * DIM, WIDTH), weight(kind, "ooooo", WIDTH, 4 * DIM)
    gate, up, down = (
        weight(kind, "g" * n, *shape) for n, shape in ((6, (64, WIDTH)), (7, (64, WIDTH)), (8, (WIDTH, 64)))
    )
    scale = weight("F32", "s" * 9, WIDTH)
    biases = [weight("F32", "b" * n, size) for n, size in ((10, 4 * DIM), (11, 2 * DIM), (12, 2 * DIM), (13, WIDTH))]

    def forward(tokens: Value, positions: Value) -> Value:
        x = embed(tokens, table)
        h = norm(x, scale, 1e-5)
        a, b, c = linear(h, q), linear(h, k), linear(h, v)
        if bias:
            a, b, c = (add(y, w) for y, w in zip((a, b, c), biases, strict=False))
        a, b = rope(heads(a, 4), Rope(DIM, 1e4)), rope(heads(b, 2), Rope(DIM, 1e4))
        y = linear(flat(attend(a, b, heads(c, 2), 0, Attention(DIM**-0.5))), o)
        x = add(x, add(y, biases[3]) if bias else y)
        h = norm(x, scale, 1e-5)
        both = (linear(h, up), linear(h, gate))[::-1] if up_first else (linear(h, gate), linear(h, up))
        y = add(linear(gated(*both, "silu"), down), x)
        return linear(norm(pick(add(y, h) if shared else y), scale, 1e-5), table)

    return forward


@pytest.mark.parametrize(
    "kind", ["F32", "Q8_0", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("F16", "Q4_0"))]
)
@pytest.mark.parametrize(
    "options", [{}, {"bias": True, "up_first": True}, {"value_kind": "Q5_0", "shared": True}], ids=str
)
def test_a_block(kind: str, options: dict[str, object]) -> None:
    """A prompt by matrix products, and two tokens one by one by dot products."""
    plan = block(kind, **options)  # type: ignore[arg-type]
    limit = 1e-9 if kind == "F32" and "value_kind" not in options else 1e-3
    for steps in ([[whole(TOKENS)]], pieces(TOKENS[:2], 1)):
        assert error(interpret(plan, steps), run("reference", plan, steps)) < limit


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_block_with_types_of_the_cache(kv_type: KvType) -> None:
    """Keys that are rotated and kept by one kernel, and what attention reads of them."""
    plan, steps = block("F32"), [[whole(TOKENS[:3])], *pieces(TOKENS, 1)[3:]]
    want = run("reference", plan, steps, kv_type=kv_type)
    assert error(interpret(plan, steps, kv_type), want) < {"f32": 1e-9, "bf16": 1e-4}.get(kv_type, 1e-5)


def test_one_token_is_few_launches() -> None:
    """Six kernels are a layer of quantized weights."""
    program, batch = compiled(block("Q8_0"), "f16")
    program.launch(batch.fill([whole([1])]))
    names = [launch.kernel.name for launch in program._launches(next(iter(program._graphs))).launches]
    program.close()
    assert names == [
        "inputs.fetch", "dequantize.rows", "gemv.gemv", "rope.angles", "endings.turn_and_keep", "attention.attend",
        "gemv.gemv", "gemv.gemv", "gemv.gemv", "gemv.gemv",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_experts(kind: str) -> None:
    table, experts, router = weight(kind, "t", 16, 128), weight(kind, "e", 4, 24, 128), weight("F32", "r", 4, 128)

    def forward(tokens: Value, positions: Value) -> Value:
        x = norm(embed(tokens, table), None, 1e-6)
        chosen, weights = route(linear(x, router), Routing(2))
        return pick(mix(expert_linear(x, experts, chosen), weights))

    for steps in ([[whole(TOKENS)]], [[whole([7])]]):
        assert error(interpret(forward, steps), run("reference", forward, steps)) < 1e-3


def test_a_norm_adds_the_parts_of_a_product_up() -> None:
    """Long columns are summed in parts; the norm that follows adds them, a bias and the residual."""
    table, first, bias = weight("Q8_0", "t", 16, 2048), weight("Q8_0", "aa", 128, 2048), weight("F32", "bbb", 128)
    scale, last = weight("F32", "s", 128), weight("Q8_0", "l", 48, 128)

    def forward(tokens: Value, positions: Value) -> Value:
        x = embed(tokens, table)
        y = add(linear(norm(x, None, 1e-5), first), add(linear(x, first), bias))
        return pick(add(linear(norm(y, scale, 1e-5), last), linear(y, last)))

    program, batch = compiled(forward, "f16")
    program.launch(batch.fill([whole(TOKENS)]))
    names = [launch.kernel.name for launch in program._launches(next(iter(program._graphs))).launches]
    program.close()
    assert "endings.combine_and_normalize" in names
    assert error(interpret(forward, [[whole(TOKENS)]]), run("reference", forward, [[whole(TOKENS)]])) < 1e-3
