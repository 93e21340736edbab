"""Every format's matrix products on the CPU, against NumPy with the same rounding of activations."""

import numpy as np
import numpy.typing as npt
import pytest
from plans import block_weight, error, float_weight, run, whole

from llamina.backends.cpu.lowering.matmul import BY_256, PLAIN, rounding
from llamina.backends.cpu.tiling import FEW, FLOAT_PART, FLOAT_TOKENS, PANEL, PART, TILE_TOKENS
from llamina.ops import Routing, Value, Weight, embed, expert_linear, flat, head_linear, heads, linear, pick, route
from llamina.quant import FORMATS, decode, encode, format_of

BLOCKS = [f.name for f in FORMATS.values() if f.block > 1 and f.name not in ("Q8_1", "Q8_K")]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3]  # enough for tiles


def rounded(x: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.float64]:
    """Activations as the kernels see them: 8 bits and a scale per block."""
    if rounding(kind) == "bf16":
        return decode(encode(x, "BF16"), format_of("BF16"), x.shape).astype(np.float64)
    if kind in PLAIN:
        return x.astype(np.float64)
    block = 256 if kind in BY_256 else 32
    cut = x.reshape(*x.shape[:-1], -1, block)
    scale = np.abs(cut).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(scale > 0, np.rint(cut * (np.float32(127) / np.abs(cut).max(-1, keepdims=True))), 0)
    return (q.astype(np.float64) * scale).reshape(x.shape)


def table(width: int, seed: int = 1) -> npt.NDArray[np.float32]:
    """Embeddings with a row of zeros, a row of one spike, and rows of very different sizes."""
    values = np.random.default_rng(seed).standard_normal((10, width)).astype(np.float32)
    values[1] = 0
    values[2] = 0
    values[2, width // 3] = -1000
    values[4] *= 1e-6
    return values


def weight(kind: str, rows: int, width: int) -> Weight:
    if kind in PLAIN:
        return float_weight("w.weight", np.random.default_rng(5).standard_normal((rows, width)) / 8, kind)
    return block_weight("w.weight", kind, (rows, width))


@pytest.mark.parametrize("kind", [*PLAIN, *BLOCKS])
def test_linear(kind: str) -> None:
    width, rows = (83, 37) if kind in PLAIN else (512, 37)
    if kind.startswith("IQ"):
        width, rows = 4096, 69  # so many blocks that all entries of their codebooks occur
    x, w = table(width), weight(kind, rows, width)

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(linear(embed(tokens, float_weight("token_embd.weight", x)), w))

    want = (rounded(x, kind) @ decode(w.data, w.format, w.shape).astype(np.float64).T)[TOKENS]
    got = run("cpu", forward, [[whole(TOKENS)]])
    # Row by row, so that a large token does not hide a small one.
    for row, truth in zip(got, want, strict=True):
        assert np.linalg.norm(row - truth) <= 2e-6 * max(np.linalg.norm(truth), 1e-30) + 1e-12
    assert np.array_equal(got, run("cpu", forward, [[whole(TOKENS)]], threads=2))
    for few in (1, 2, 3, 7):  # one by one, by fours, and with a remainder
        assert np.array_equal(got[:few], run("cpu", forward, [[whole(TOKENS[:few])]]))


@pytest.mark.parametrize(
    "kind", [*PLAIN, "Q4_0", "Q4_1", "Q8_0", "MXFP4", "NVFP4", "Q2_K", "Q4_K", "Q5_K", "Q6_K", "IQ3_S", "IQ4_XS"]
)
def test_long_rows_have_the_bits_of_one_token(kind: str) -> None:
    """Rows longer than a tile, whose parts are added up; the last part shorter."""
    width = 2 * PART + 256 if kind not in PLAIN else 2 * FLOAT_PART + 259
    x, w = table(width), weight(kind, 35, width)

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(linear(embed(tokens, float_weight("token_embd.weight", x)), w))

    alone = np.concatenate([run("cpu", forward, [[whole([token])]]) for token in range(10)])
    for tokens in (TOKENS, 2 * TOKENS):  # half a tile's length for few, all of it for more
        assert np.array_equal(run("cpu", forward, [[whole(tokens)]]), alone[tokens])
    assert len(TOKENS) <= FEW < 2 * len(TOKENS)
    many = (TOKENS * TILE_TOKENS)[: max(TILE_TOKENS, FLOAT_TOKENS) + 5]  # more than pass by a tile at once
    assert np.array_equal(run("cpu", forward, [[whole(many)]], max_tokens=len(many), pages=64), alone[many])


@pytest.mark.parametrize("kind", PLAIN)
def test_sums_of_a_whole_panel_wait_for_other_parts(kind: str) -> None:
    """Rows that are cut in two, as many as a panel has, and more tokens than pass by it at once."""
    width, tokens = 3300, (TOKENS * FLOAT_TOKENS)[: FLOAT_TOKENS + 5]
    x, w = table(width), weight(kind, PANEL + 7, width)

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(linear(embed(tokens, float_weight("token_embd.weight", x)), w))

    alone = np.concatenate([run("cpu", forward, [[whole([token])]]) for token in range(10)])
    assert np.array_equal(run("cpu", forward, [[whole(tokens)]], max_tokens=len(tokens), pages=64), alone[tokens])


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("width", [1, 7, 8, 9])
def test_short_rows_have_the_bits_of_one_token(kind: str, width: int) -> None:
    """Rows that are no whole step."""
    x, w = table(width), weight(kind, 71, width)

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(linear(embed(tokens, float_weight("token_embd.weight", x)), w))

    alone = np.concatenate([run("cpu", forward, [[whole([token])]]) for token in range(10)])
    assert np.array_equal(run("cpu", forward, [[whole(TOKENS)]]), alone[TOKENS])


@pytest.mark.parametrize("kind", ["F16", "Q4_1", "Q8_0", "NVFP4", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("spoilt", [np.nan, np.inf])
def test_what_is_no_number_stays_none(kind: str, spoilt: float) -> None:
    """A damaged model must not end in numbers that look sound."""
    x, w = table(512), weight(kind, 37, 512)
    for place in (0, 77, 511):
        x[3] = 1
        x[3, place] = spoilt

        def forward(tokens: Value, positions: Value) -> Value:
            return pick(linear(embed(tokens, float_weight("token_embd.weight", x)), w))

        for tokens in ([3], TOKENS):
            got = run("cpu", forward, [[whole(tokens)]])
            assert np.array_equal(np.isfinite(got).any(-1), [token != 3 for token in tokens])


@pytest.mark.parametrize("kind", [*PLAIN, *BLOCKS])
def test_embedding_rows_are_decoded_exactly(kind: str) -> None:
    w = weight(kind, 10, 256 if kind not in PLAIN else 21)

    def forward(tokens: Value, positions: Value) -> Value:
        return pick(embed(tokens, w))

    got = run("cpu", forward, [[whole(TOKENS)]])
    assert np.array_equal(got, decode(w.data, w.format, w.shape)[TOKENS])


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q4_K", "Q6_K", "IQ3_S", "MXFP4"])
def test_experts(kind: str) -> None:
    """Experts, one input for all and one for each; heads with matrices of their own."""
    width, x = 256, table(256)
    up, down = (block_weight(n, kind, (4, 256, width)) if kind != "F32" else None for n in ("up", "down"))
    rng = np.random.default_rng(9)
    up = up or float_weight("up", rng.standard_normal((4, 256, width)) / 16)
    down = down or float_weight("down", rng.standard_normal((4, 256, width)) / 16)
    router = float_weight("router", rng.standard_normal((4, width)))

    def forward(tokens: Value, positions: Value) -> Value:
        h = embed(tokens, float_weight("token_embd.weight", x))
        chosen, _ = route(linear(h, router), Routing(2))
        return pick(flat(expert_linear(expert_linear(h, up, chosen), down, chosen)))

    def by_heads(tokens: Value, positions: Value) -> Value:
        h = embed(tokens, float_weight("token_embd.weight", np.tile(x, (1, 4))))
        return pick(flat(head_linear(heads(h, 4), up)))

    tolerance = 1e-10 if kind == "F32" else 2e-3
    for plan in (forward, by_heads):
        got, want = (run(backend, plan, [[whole([0, 3, 5, 7])]]) for backend in ("cpu", "reference"))
        assert error(got, want) < tolerance


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_K", "IQ2_XS", "NVFP4"])
def test_many_tokens_through_experts_have_the_bits_of_one(kind: str) -> None:
    """With many tokens items are sorted by expert and go through tiles; alone each goes through strips."""
    rng, width = np.random.default_rng(3), 256
    x = rng.standard_normal((10, width)).astype(np.float32)
    w = weight(kind, 3 * 20, width).shaped(3, 20, width)
    router = float_weight("router", rng.standard_normal((3, width)))

    def forward(tokens: Value, positions: Value) -> Value:
        h = embed(tokens, float_weight("token_embd.weight", x))
        chosen, _ = route(linear(h, router), Routing(2))
        return pick(flat(expert_linear(h, w, chosen)))

    tokens = [int(t) for t in rng.integers(0, 10, 50)]
    together = run("cpu", forward, [[whole(tokens)]], threads=3)
    alone = np.concatenate([run("cpu", forward, [[whole([t])]]) for t in range(10)])
    assert np.array_equal(together, alone[tokens])


def test_formats_with_kernels_are_those_that_are_told() -> None:
    """layout.py lists them for programs that do not want numba."""
    from llamina.backends.cpu.kernels.matmul import MULTIPLY
    from llamina.backends.cpu.layout import MATRIX_FORMATS

    assert set(MULTIPLY) == MATRIX_FORMATS
