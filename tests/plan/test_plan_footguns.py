"""Recording traps. A value holds nothing while a model is being recorded, so Python must not ask it anything.

trap                              verdict
if value: … / not value           RecordingError
len(value), for x in value        RecordingError
table[value], range(value)        RecordingError
float(value), int(value)          RecordingError (int goes through __index__)
a, b = value                      RecordingError: split() is the operation
a reshape that does not fit       RecordingError
value == value                    identity, like any object: harmless
a number from the config          frozen into the plan, as it should be
"""

from collections.abc import Callable
from typing import Any

import pytest

from llamina.errors import RecordingError
from llamina.ops import Value, activate, pick, reshape, scale
from llamina.plan import record

TRAPS: dict[str, Callable[[Value], Any]] = {
    "bool": bool,
    "if": lambda v: 1 if v else 2,
    "not": lambda v: not v,
    "and": lambda v: v and 1,
    "len": len,
    "iter": iter,
    "list": list,
    "unpack": lambda v: (lambda a, b: a)(*v),
    "in": lambda v: 3 in v,
    "index": lambda v: [1, 2, 3][v],
    "range": range,
    "slice": lambda v: [1, 2, 3][v:],
    "int": int,
    "float": float,
    "sum": sum,
}


@pytest.mark.parametrize("trap", TRAPS)
def test_looking_at_a_value(trap: str) -> None:
    seen: list[str] = []

    def forward(tokens: Value, positions: Value) -> Value:
        for value in (tokens, positions, scale(tokens, 2.0)):
            with pytest.raises(RecordingError, match=r"while it was being recorded.*branch on the config"):
                TRAPS[trap](value)
            seen.append(trap)
        return pick(tokens)

    record(forward)
    assert len(seen) == 3


def test_the_error_leaves_record() -> None:
    with pytest.raises(RecordingError):
        record(lambda tokens, positions: tokens if tokens else positions)


def test_a_reshape_that_does_not_fit() -> None:
    with pytest.raises(RecordingError, match=r"\[\] cannot be reshaped to \[3\]"):
        record(lambda tokens, positions: reshape(tokens, 3))


def test_equality_is_identity() -> None:
    def forward(tokens: Value, positions: Value) -> Value:
        assert tokens == tokens and tokens != positions
        assert len({tokens, positions}) == 2
        return tokens

    record(forward)


def test_operators_are_operations() -> None:
    def forward(tokens: Value, positions: Value) -> Value:
        x = reshape(tokens, 1)
        return x + x * 3 + x * x

    plan = record(forward)
    assert [s.op for s in plan.steps] == ["reshape", "scale", "add", "mul", "add"]
    assert plan.steps[1].attrs == {"factor": 3.0}


def test_two_recordings_know_nothing_of_each_other() -> None:
    def forward(tokens: Value, positions: Value) -> Value:
        inner = record(lambda t, p: activate(reshape(t, 1), "silu"))
        assert [s.op for s in inner.steps] == ["reshape", "activate"]
        return pick(activate(reshape(tokens, 1), "relu"))

    plan = record(forward)
    assert [s.op for s in plan.steps] == ["reshape", "activate", "pick"]
    assert [v.id for s in plan.steps for v in s.outputs] == [2, 3, 4]


def test_what_is_read_last() -> None:
    def forward(tokens: Value, positions: Value) -> Value:
        a = reshape(tokens, 1)
        b = scale(a, 2.0)
        return b + a

    plan = record(forward)
    assert plan.last_uses() == {plan.tokens.id: 0, 2: 2, 3: 2, plan.logits.id: 3}
