"""Adapters on the CPU: against NumPy, against merged weights, and each row's bits whoever is beside it."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from plans import Forward, error, float_weight, run, whole

from llamina.backends import Capacity, backend
from llamina.ops import LowRank, Routing, Value, embed, expert_linear, flat, heads, linear, pick, route
from llamina.ops.batch import Applied, Batch, Span
from llamina.plan import adapt, adaptable, record

RNG = np.random.default_rng(11)
TABLE = RNG.standard_normal((32, 60)).astype(np.float32)
ROUTER = RNG.standard_normal((5, 60))
MATRICES = {
    "plain": RNG.standard_normal((37, 60)) / 8,
    "by head": RNG.standard_normal((37, 15)) / 4,
    "experts": RNG.standard_normal((5, 37, 60)) / 8,
    "token_embd": TABLE,
    "head": RNG.standard_normal((41, 60)) / 8,
}
TOKENS = [int(t) for t in RNG.integers(0, 32, 23)]


def plan_of(name: str, values: npt.NDArray[np.float64]) -> Forward:
    """A pass through one matrix, which has these values."""

    def forward(tokens: Value, positions: Value) -> Value:
        x = embed(tokens, float_weight("token_embd", values if name == "token_embd" else TABLE))
        w = float_weight(name, values)
        if name == "token_embd":
            return pick(x)
        if name == "by head":
            return pick(flat(linear(heads(x, 4), w)))
        if name == "experts":
            return pick(flat(expert_linear(x, w, route(linear(x, float_weight("router", ROUTER)), Routing(2))[0])))
        return linear(pick(x), w) if name == "head" else pick(linear(x, w))

    return forward


def pair(name: str, rank: int, seed: int, scale: float = 1.0) -> LowRank:
    rng, shape = np.random.default_rng(seed), MATRICES[name].shape
    *experts, out, width = shape
    a, b = ((out, rank), (width, rank)) if name == "token_embd" else ((*experts, rank, width), (*experts, out, rank))
    return LowRank(
        (rng.standard_normal(a) / 8).astype(np.float32), (rng.standard_normal(b) / 8).astype(np.float32), scale
    )


def merged(name: str, pairs: list[tuple[LowRank, float]]) -> npt.NDArray[np.float64]:
    """The matrix with everything added that the pairs stand for."""
    total = MATRICES[name].astype(np.float64)
    for p, scale in pairs:
        a, b = p.a.astype(np.float64), p.b.astype(np.float64)
        total = total + scale * p.scale * (a @ b.T if name == "token_embd" else b @ a)
    return total


def outputs(
    device: str, name: str, loaded: dict[int, LowRank], spans: list[Span], threads: int = 1
) -> npt.NDArray[np.float32]:
    plan = adapt(record(plan_of(name, MATRICES[name])), [name])
    batch = Batch(64, 64, 8, 16)
    program = backend(device, threads=threads).compile(plan, batch, Capacity(64, 8, "f32"))
    for slot, low_rank in loaded.items():
        program.adapt(slot, {name: low_rank})
    try:
        return program.launch(batch.fill(spans)).result().copy()
    finally:
        program.close()


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", MATRICES)
def test_stacked_adapters_are_the_merged_weights(name: str, device: str) -> None:
    pairs = {0: pair(name, 3, 1, 2.0), 63: pair(name, 16, 2)}
    span = whole(TOKENS)._replace(adapters=(Applied(63, 0.5), Applied(0, -1.25)))
    got = outputs(device, name, pairs, [span])
    want = run("reference", plan_of(name, merged(name, [(pairs[63], 0.5), (pairs[0], -1.25)])), [[whole(TOKENS)]])
    assert error(got, want) < 1e-12
    plain = run("reference", plan_of(name, MATRICES[name]), [[whole(TOKENS)]])
    assert error(got, plain) > 1e-4, "an adapter that does nothing proves nothing"


@pytest.mark.parametrize("name", MATRICES)
def test_a_row_has_its_bits_whoever_is_beside_it(name: str) -> None:
    """Sequences without adapters, with one, with others and with several, together and each alone, 1 and 3 threads."""
    pairs = {2: pair(name, 8, 3), 5: pair(name, 11, 4, 0.5)}
    uses = [(), (Applied(2, 1.0),), (Applied(5, 2.0), Applied(2, 0.25)), (Applied(5, 2.0),)]
    spans = [whole(TOKENS[: 12 - i], i, i)._replace(adapters=use) for i, use in enumerate(uses)]
    together = outputs("cpu", name, pairs, spans)
    assert np.array_equal(together, outputs("cpu", name, pairs, spans, threads=3))
    alone = [outputs("cpu", name, pairs, [span], threads=1 + i % 2) for i, span in enumerate(spans)]
    assert np.array_equal(together, np.concatenate(alone))
    one = spans[1]._replace(tokens=TOKENS[:1], outputs=[0])
    assert np.array_equal(alone[1][:1], outputs("cpu", name, pairs, [one], threads=3)), "few rows, shared by outputs"
    plain = run("cpu", plan_of(name, MATRICES[name]), [[spans[0]]])
    assert np.array_equal(alone[0], plain), "a sequence without adapters has the bits of a plan without them"


def test_slots_are_filled_and_emptied() -> None:
    name, span = "plain", whole(TOKENS)._replace(adapters=(Applied(1, 1.0),))
    plain, with_it = (outputs("cpu", name, loaded, [span]) for loaded in ({}, {1: pair(name, 4, 5)}))
    plan = adapt(record(plan_of(name, MATRICES[name])), [name])
    batch = Batch(64, 64, 8, 16)
    program = backend("cpu", threads=1).compile(plan, batch, Capacity(64, 8, "f32"))
    batch.fill([span])
    for pairs, want in (({name: pair(name, 4, 5)}, with_it), ({}, plain), ({name: pair(name, 4, 5)}, with_it)):
        program.adapt(1, pairs)
        assert np.array_equal(program.launch(batch).result(), want)
    program.close()


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_an_adapter_may_act_from_a_position_on(device: str) -> None:
    name = "plain"
    pairs = {0: pair(name, 4, 6)}
    before, after, late = (
        outputs(device, name, pairs, [whole(TOKENS)._replace(adapters=use)])
        for use in ((), (Applied(0, 1.0),), (Applied(0, 1.0, 9),))
    )
    assert np.array_equal(late[:9], before[:9]) and np.array_equal(late[9:], after[9:])


def test_tied_embeddings_are_adapted_as_embeddings_only() -> None:
    table = float_weight("token_embd", TABLE)
    plan = record(lambda tokens, positions: linear(pick(embed(tokens, table)), table))
    assert {name: step.op for name, step in adaptable(plan).items()} == {"token_embd": "embed"}
    assert [step.op for step in adapt(plan, ["token_embd"]).steps] == ["embed", "adapt", "pick", "linear"]
    assert adapt(plan, []).steps == plan.steps


def test_a_matrix_with_a_scale_is_not_adapted() -> None:
    """The scale comes behind the product, and what adapters add must not be scaled with it."""
    scaled = replace(float_weight("plain", MATRICES["plain"]), scale=float_weight("scale", [2.0]))
    plan = record(lambda tokens, positions: pick(linear(embed(tokens, float_weight("token_embd", TABLE)), scaled)))
    assert list(adaptable(plan)) == ["token_embd"]
