"""Every operation on the CPU against its NumPy meaning: odd sizes, views, broadcasts, chunks, threads."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from plans import Forward, error, float_weight, pieces, run, whole

from llamina.ops import (
    Attention,
    Ngrams,
    Rope,
    Routing,
    Selection,
    Value,
    Weight,
    activate,
    add,
    attend,
    attend_latent,
    clamp,
    concat,
    convolve,
    div,
    embed,
    flat,
    gated,
    heads,
    linear,
    linear_attend,
    mix,
    mul,
    ngrams,
    norm,
    pad,
    pick,
    pool,
    reshape,
    rope,
    route,
    scale,
    scan,
    select,
    sinkhorn,
    softcap,
    softmax,
    split,
    temper,
)
from llamina.ops.batch import PAGE, Span

RNG = np.random.default_rng(7)
TABLE = (2 * RNG.standard_normal((32, 60))).astype(np.float32)
TABLE[5, 7], TABLE[6, 0] = 40.0, -95.0  # past where exp is cut off
TOKENS = [int(t) for t in RNG.integers(0, 32, 41)]


def constant(name: str, *shape: int) -> Weight:
    return float_weight(name, np.random.default_rng(len(name)).standard_normal(shape) * 0.5)


def start(tokens: Value) -> Value:
    return embed(tokens, float_weight("token_embd.weight", TABLE))


def project(x: Value, n: int, name: str) -> Value:
    return linear(x, constant(name, n, x.shape[-1]))


def elementwise(function: Callable[[Value], Value]) -> Forward:
    return lambda tokens, positions: pick(flat(function(start(tokens))))


def _attention(params: Attention, sinks: bool = False, dim: int = 12, group: int = 2, value_dim: int = 20) -> Forward:
    def forward(tokens: Value, positions: Value) -> Value:
        x = start(tokens)
        q, k, v = (heads(project(x, n, name), h) for name, n, h in
                   (("q", 2 * group * dim, 2 * group), ("kk", 2 * dim, 2), ("vvv", 2 * value_dim, 2)))  # fmt: skip
        biases = constant("biases", 2 * group, 2 * params.distances) if params.distances else None
        out = attend(q, k, v, 0, params, constant("sinks", 2 * group) if sinks else None, biases=biases)
        return pick(flat(out))

    return forward


def _shared_keys(tokens: Value, positions: Value) -> Value:
    """Two layers whose keys and values are those of the first; keys are rotated, as models have it."""
    x, params = start(tokens), Attention(0.3, window=9)
    k, v = rope(heads(project(x, 24, "kk"), 2), Rope(12, 1e4)), heads(project(x, 40, "vvv"), 2)
    for name in ("q", "other q"):
        q = rope(heads(project(x, 48, name), 4), Rope(12, 1e4))
        x = x + project(flat(attend(q, k, v, 0, params)), 60, f"{name} out")
    return pick(x)


def _latent(tokens: Value, positions: Value) -> Value:
    x = start(tokens)
    q, k = heads(project(x, 4 * 30, "q"), 4), heads(project(x, 30, "kk"), 1)
    return pick(flat(attend_latent(q, k, 22, 0, Attention(0.2))))


def _chosen(params: Selection, weighed: bool, latent: bool = False) -> Forward:
    def forward(tokens: Value, positions: Value) -> Value:
        x = start(tokens)
        iq, ik = heads(project(x, 2 * 10, "index q"), 2), heads(project(x, 10, "index k"), 1)
        iq, ik = rope(iq, Rope(10, 1e4)), rope(ik, Rope(10, 1e4))  # so that no scores are equal
        seen = select(iq, ik, 0, params, project(x, 2, "index w") if weighed else None)
        q, k, v = (heads(project(x, n * 12, name), n) for name, n in (("q", 6), ("kk", 2), ("vvv", 2)))
        attention = Attention(0.3, block=params.block)
        if latent:
            return pick(flat(attend_latent(q, heads(project(x, 12, "l"), 1), 9, 0, attention, seen)))
        return pick(flat(attend(q, k, v, 0, attention, None, seen)))

    return forward


def _route(params: Routing, bias: bool = False) -> Forward:
    def forward(tokens: Value, positions: Value) -> Value:
        x = start(tokens)
        _, weights = route(project(x, 12, "router"), params, constant("bias_", 12) if bias else None)
        return pick(mix(reshape(project(x, params.used * 7, "experts"), params.used, 7), weights))

    return forward


def _ngrams(tokens: Value, positions: Value) -> Value:
    params = Ngrams((12345678912345, 3, 98765432198765), (11, 13, 17, 9), (0, 11, 24, 41), end=27)
    return pick(flat(embed(ngrams(tokens, params, 0), constant("grams", 50, 6))))


def _scan(tokens: Value, positions: Value) -> Value:
    x = convolve(project(start(tokens), 21, "in"), float_weight("c.w", RNG_CONV), 0)
    dt, b, c = activate(project(x, 21, "dt"), "softplus"), project(x, 11, "b"), project(x, 11, "cc")
    return pick(scan(x, dt, float_weight("a", -np.abs(RNG_A)), b, c, 0))


def _linear_attend(key: int, dim: int, *, delta: bool = False, by_key: bool = False, tiled: bool = False) -> Forward:
    """Four heads in two groups; the decay from the input, or a weight."""

    def forward(tokens: Value, positions: Value) -> Value:
        x = start(tokens)
        q, k, v = heads(project(x, 2 * key, "q"), 2), heads(project(x, 2 * key, "kk"), 2), project(x, 4 * dim, "vvv")
        q, k = norm(q, None, 1e-5), scale(norm(k, None, 1e-5), key**-0.5)
        decay = activate(heads(project(x, 4 * key, "decay"), 4), "sigmoid") if by_key else float_weight("d", RNG_DECAY)
        beta = activate(project(x, 4, "beta"), "sigmoid") if delta else None
        return pick(flat(linear_attend(q, k, heads(v, 4), decay, 0, beta, tiled)))

    return forward


RNG_CONV, RNG_A = RNG.standard_normal((21, 4)), RNG.standard_normal((21, 11))
RNG_DECAY = RNG.uniform(0.5, 1, (4, 1))

PLANS: dict[str, Forward] = {
    "reshape at the end": lambda tokens, positions: flat(heads(pick(start(tokens)), 6)),
    "slice at the end": lambda tokens, positions: split(pick(start(tokens)), 20, 40)[1],
    "add": elementwise(lambda x: add(x, x)),
    "add weight": elementwise(lambda x: add(x, constant("b", 60))),
    "add per head": elementwise(lambda x: add(heads(x, 6), constant("b", 10))),
    "add a value to each head": elementwise(lambda x: add(heads(x, 6), project(x, 10, "a"))),
    "mul one per head": elementwise(lambda x: mul(heads(x, 6), constant("d", 6, 1))),
    "mul one per row": elementwise(lambda x: mul(x, activate(project(x, 1, "g"), "sigmoid"))),
    "mul heads by one per row": elementwise(lambda x: mul(heads(x, 6), project(x, 1, "g"))),
    "div by a weight": elementwise(lambda x: div(heads(x, 6), float_weight("d", 1.5 + np.cos(np.arange(10))))),
    "pad": elementwise(lambda x: pad(split(x, 25, 35)[1], 7, -3.0)),
    "scale": elementwise(lambda x: scale(x, -1.5)),
    "softcap": elementwise(lambda x: softcap(x, 3.0)),
    "clamp": elementwise(lambda x: clamp(x, -1.5, 0.5)),
    "clamp from above": elementwise(lambda x: clamp(split(x, 25, 35)[1], -math.inf, 0.5)),
    "temper": elementwise(lambda x: temper(heads(x, 4), 8, 0.1, 1.0)),
    "gated, swiglu_oai": elementwise(lambda x: gated(*split(scale(x, 5.0), 30, 30), "swiglu_oai")),
    "gated views": elementwise(lambda x: gated(*split(x, 30, 30), "silu")),
    "rms norm": elementwise(lambda x: norm(x, constant("n", 60), 1e-5)),
    "rms norm of heads": elementwise(lambda x: norm(heads(x, 4), constant("n", 15), 1e-5)),
    "rms norm of groups": elementwise(lambda x: norm(heads(x, 4), constant("n", 4, 15), 1e-5)),
    "rms norm of a view": elementwise(lambda x: norm(split(heads(x, 4), 4, 11)[1], None, 1e-5)),
    "softmax": elementwise(lambda x: softmax(heads(x, 4))),
    "layer norm": elementwise(lambda x: norm(x, constant("n", 60), 1e-5, "layer")),
    "rope": elementwise(lambda x: rope(heads(x, 5), Rope(12, 1e4))),
    "rope neox, part of it": elementwise(lambda x: rope(heads(x, 5), Rope(8, 1e4, neox=True, scale=0.25))),
    "rope yarn": elementwise(lambda x: rope(heads(x, 3), Rope(20, 1e4, True, 0.25, 1.0, 1.1, original_context=64))),
    "rope factors": elementwise(lambda x: rope(heads(x, 5), Rope(12, 1e4), float_weight("f", [1, 1.5, 2, 3, 4, 5]))),
    "slices and concat": elementwise(lambda x: concat(*reversed(split(heads(x, 4), 4, 11)))),
    "concat one head to all": elementwise(lambda x: concat(heads(x, 4), heads(project(x, 3, "k"), 1))),
    "mixes": elementwise(lambda x: mix(heads(x, 4), heads(project(x, 12, "w"), 4))),
    "outer product": elementwise(lambda x: mix(heads(x, 1), heads(project(x, 3, "w"), 1))),
    "sinkhorn": elementwise(lambda x: sinkhorn(heads(project(x, 16, "s"), 4), 3, 1e-6)),
    "mul by some elements": elementwise(lambda x: mul(x, constant("c", 90).rows(17, 77))),
    "pool": elementwise(lambda x: pool(x, project(x, 60, "g"), constant("ape", 4, 60), 0)),
    "convolve, taps apart": elementwise(lambda x: convolve(x, constant("c", 60, 3), 0, apart=4)),
    "n-grams": _ngrams,
    "linear of heads": elementwise(lambda x: project(heads(x, 4), 9, "h")),
    "linear of a view": elementwise(lambda x: project(split(heads(x, 4), 4, 11)[1], 9, "h")),
    "linear of heads of a part": elementwise(lambda x: project(heads(split(x, 24, 36)[1], 4), 7, "h")),
    "attention": _attention(Attention(0.3)),
    "attention to shared keys": _shared_keys,
    "attention, window": _attention(Attention(0.3, window=5)),
    "attention, chunks": _attention(Attention(0.3, chunk=7)),
    "attention, chunks and window": _attention(Attention(0.3, window=5, chunk=18)),
    "attention, cap": _attention(Attention(0.3, softcap=2.0)),
    "attention, alibi": _attention(Attention(0.3, alibi=8.0), group=3),
    "attention, biases by distance": _attention(Attention(0.3, distances=256), group=3),
    "attention, sinks": _attention(Attention(0.3), sinks=True),
    "attention, long dim": _attention(Attention(0.1), dim=64, group=1),
    "latent attention": _latent,
    "attention to the chosen": _chosen(Selection(256, 5), True),
    "attention to chosen blocks": _chosen(Selection(256, 3, 4, local=1), False),
    "attention to large chosen blocks": _chosen(Selection(256, 1, 20), False),
    "attention to whole chosen blocks": _chosen(Selection(256, 3, 4, whole=True), True),
    "latent attention to the chosen": _chosen(Selection(256, 5), True, latent=True),
    "latent attention to all": _chosen(Selection(256, 256), True, latent=True),
    "route softmax": _route(Routing(3)),
    "route normalized": _route(Routing(3, normalize=True, scale=2.5)),
    "route sigmoid with bias": _route(Routing(4, "sigmoid", True), bias=True),
    "route groups": _route(Routing(3, "sigmoid", groups=4, groups_used=2), bias=True),
    "route selected": _route(Routing(3, "softmax_selected")),
    "route sigmoid of the selected": _route(Routing(3, "sigmoid_selected")),
    "route shared": _route(Routing(3, "softmax_selected", share=4)),
    "scan": _scan,
    "linear attention": _linear_attend(8, 16),
    "linear attention, odd sizes": _linear_attend(7, 11),
    "linear attention, decay by key": _linear_attend(16, 8, by_key=True),
    "delta rule": _linear_attend(8, 11, delta=True, tiled=True),
    "delta rule, decay by key": _linear_attend(13, 24, delta=True, by_key=True),
}
PLANS |= {
    f"activate {kind}": elementwise(lambda x, kind=kind: activate(x, kind))  # type: ignore[misc]
    for kind in (
        "silu",
        "gelu",
        "gelu_erf",
        "gelu_quick",
        "relu",
        "relu_sqr",
        "sigmoid",
        "tanh",
        "softplus",
        "exp",
        "signed_sqrt",
    )
}


@pytest.mark.parametrize("name", PLANS)
def test_equals_its_meaning(name: str) -> None:
    want = run("reference", PLANS[name], [[whole(TOKENS)]])
    got = run("cpu", PLANS[name], [[whole(TOKENS)]])
    assert np.isfinite(got).all()
    assert error(got, want) < 1e-10


@pytest.mark.parametrize("name", PLANS)
def test_same_bits_however_it_is_cut(name: str) -> None:
    plan, got = PLANS[name], run("cpu", PLANS[name], [[whole(TOKENS)]])
    assert np.array_equal(got, run("cpu", plan, [[whole(TOKENS)]], threads=3))
    for size in (1, 3, 16):
        assert np.array_equal(got, run("cpu", plan, pieces(TOKENS, size, first_page=5, slot=2)))
    beside = [whole([1, 2, 3], first_page=20, slot=1), whole(TOKENS, slot=3), whole([9], first_page=30, slot=2)]
    assert np.array_equal(got, run("cpu", plan, [beside], threads=2)[3:-1])


@pytest.mark.parametrize("options", [{}, {"alibi": 8.0}, {"window": 9}, {"window": 40}, {"distances": 256}])
def test_attention_both_ways(options: dict[str, float]) -> None:
    """Every token sees the span, or half a window on either side, on any number of threads and beside any others."""
    plan = _attention(Attention(0.3, causal=False, **options))  # type: ignore[arg-type]
    want, got = (run(backend, plan, [[whole(TOKENS)]]) for backend in ("reference", "cpu"))
    assert error(got, want) < 1e-10
    assert error(got, run("cpu", _attention(Attention(0.3)), [[whole(TOKENS)]])) > 1e-3
    beside = [whole([1, 2, 3], first_page=20, slot=1), whole(TOKENS, slot=3), whole([9], first_page=30, slot=2)]
    assert np.array_equal(got, run("cpu", plan, [beside], threads=3)[3:-1])


BACKENDS = ("reference", "cpu")
LONG = {
    "plain": _attention(Attention(0.3), dim=16, group=3),
    "everything": _attention(Attention(0.3, window=300, alibi=8.0, softcap=20.0), sinks=True, group=1),
    "biases by distance": _attention(Attention(0.3, distances=512), group=1),
    "latent": _latent,
    "chosen": _chosen(Selection(512, 3, 32, local=1), False),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_context_is_shared_by_threads(name: str) -> None:
    """Chunks of it, by any number of threads, whole or token by token: the meaning, and the same bits."""
    tokens = np.random.default_rng(5).integers(0, 32, 500).tolist()
    want, got = (run(backend, LONG[name], [[whole(tokens)]], max_tokens=512, pages=40) for backend in BACKENDS)
    assert error(got, want) < 1e-10
    pages = list(range(-(-len(tokens) // PAGE)))
    steps = [[Span(tokens[:480], 0, pages, 0, range(480))]]
    steps += [[Span([token], 480 + i, pages, 0, [0])] for i, token in enumerate(tokens[480:])]
    for threads in (1, 2, 5):
        assert np.array_equal(got, run("cpu", LONG[name], steps, threads=threads, max_tokens=512, pages=40))


KEPT = ("f16", "bf16", "q8_0", "q4_0")


@pytest.mark.parametrize("kv_type", KEPT)
@pytest.mark.parametrize("name", [name for name in PLANS if name.startswith(("attention", "latent"))])
def test_rounded_keys_and_values(name: str, kv_type: str) -> None:
    """Within rounding of their meaning, unless rounding decides who is seen; and the same bits however cut."""
    want = run("reference", PLANS[name], [[whole(TOKENS)]], kv_type=kv_type)
    got = run("cpu", PLANS[name], [[whole(TOKENS)]], kv_type=kv_type)
    if " to " not in name:
        exact = run("cpu", PLANS[name], [[whole(TOKENS)]])
        near, far = {"f16": (1e-7, 1e-6), "bf16": (1e-5, 1e-3), "q8_0": (1e-4, 1e-2), "q4_0": (1e-3, 0.2)}[kv_type]
        assert error(got, want) < near  # a last bit may tip the rounding
        assert error(got, exact) < far
    for size in (1, 3):
        assert np.array_equal(got, run("cpu", PLANS[name], pieces(TOKENS, size, first_page=5, slot=2), kv_type=kv_type))


@pytest.mark.parametrize("kv_type", KEPT)
@pytest.mark.parametrize(
    ("dim", "value_dim", "group", "window"),
    [(20, 20, 3, 0), (64, 64, 3, 0), (64, 112, 1, 0), (33, 72, 5, 40), (128, 12, 2, 0), (8, 40, 16, 0)],
)
def test_many_rows_have_the_bits_of_one(kv_type: str, dim: int, value_dim: int, group: int, window: int) -> None:
    """Many tokens and heads share a chunk that is made float32 once; one token reads it as it is kept."""
    plan = _attention(Attention(0.3, window=window), dim=dim, group=group, value_dim=value_dim)
    tokens = np.random.default_rng(2).integers(0, 32, 150).tolist()
    together = run("cpu", plan, [[whole(tokens)]], kv_type=kv_type, max_tokens=150)
    assert np.array_equal(together, run("cpu", plan, pieces(tokens, 1), kv_type=kv_type))
    assert np.array_equal(together, run("cpu", plan, pieces(tokens, 47), kv_type=kv_type))


@pytest.mark.parametrize("kv_type", KEPT)
def test_what_is_no_number_is_kept_as_none(kv_type: str) -> None:
    poisoned = TABLE.copy()
    poisoned[31, 3] = np.nan
    x = float_weight("token_embd.weight", poisoned)

    def forward(tokens: Value, positions: Value) -> Value:
        h = embed(tokens, x)
        q, k, v = (heads(project(h, 24, n), 2) for n in ("q", "kk", "vvv"))
        return pick(flat(attend(q, k, v, 0, Attention(0.3))))

    found = run("cpu", forward, pieces([1, 31, 2, 3], 1), kv_type=kv_type)
    assert np.isfinite(found[0]).all() and np.isnan(found[1:]).all()


def test_a_reused_page_keeps_nothing() -> None:
    """What another sequence left in a page, NaN included, is never seen."""
    poisoned = TABLE.copy()
    poisoned[31] = np.nan
    x = float_weight("token_embd.weight", poisoned)

    def forward(tokens: Value, positions: Value) -> Value:
        h = embed(tokens, x)
        q, k, v = (heads(project(h, 24, n), 2) for n in ("q", "kk", "vvv"))
        return pick(flat(attend(q, k, v, 0, Attention(0.3))))

    clean = run("cpu", forward, [[whole([1, 2, 3])]])
    dirty = run("cpu", forward, [[Span([31] * 16, 0, [0], 0, [0])], [whole([1, 2, 3])]])
    assert np.array_equal(dirty[1:], clean)
