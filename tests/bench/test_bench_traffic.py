"""Bytes and products of plans, counted by hand."""

import numpy as np
import pytest

from llamina.bench.traffic import multiplications, weight_bytes
from llamina.ops import Routing, Value, Weight, embed, expert_linear, flat, linear, pick, route
from llamina.plan import Plan, record
from llamina.quant import format_of


def weight(*shape: int) -> Weight:
    return Weight("w.weight", shape, format_of("F32"), np.zeros(4 * int(np.prod(shape)), np.uint8))


@pytest.fixture
def dense() -> Plan:
    """10 embeddings of 8, a matrix [4, 8], logits [10, 4] of the wanted rows."""

    def forward(tokens: Value, positions: Value) -> Value:
        return linear(pick(linear(embed(tokens, weight(10, 8)), weight(4, 8))), weight(10, 4))

    return record(forward)


@pytest.fixture
def experts() -> Plan:
    """2 of 4 experts, [16, 8] each, after a router [4, 8]."""

    def forward(tokens: Value, positions: Value) -> Value:
        h = embed(tokens, weight(10, 8))
        chosen, _ = route(linear(h, weight(4, 8)), Routing(2))
        return pick(flat(expert_linear(h, weight(4, 16, 8), chosen)))

    return record(forward)


def test_of_an_embedding_only_rows_are_read(dense: Plan) -> None:
    assert weight_bytes(dense) == 4 * (8 + 4 * 8 + 10 * 4)
    assert weight_bytes(dense, 3) == pytest.approx(4 * (3 * 8 + 4 * 8 + 10 * 4))


def test_logits_are_computed_where_they_are_wanted(dense: Plan) -> None:
    assert multiplications(dense, 1) == 32 + 40
    assert multiplications(dense, 512) == 512 * 32 + 40


def test_only_chosen_experts_count(experts: Plan) -> None:
    assert weight_bytes(experts) == 4 * (8 + 32 + 2 * 16 * 8)
    assert weight_bytes(experts, 2) == pytest.approx(4 * (2 * 8 + 32 + 3 * 16 * 8))  # 1 - (1/2)² of four
    assert multiplications(experts, 10, 1) == 10 * (32 + 2 * 16 * 8)
