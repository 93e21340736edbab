"""Plans that are divided between two layers: which steps and states go where, and what is handed over."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from llamina.engine.runner.load import weights_of
from llamina.errors import UnsupportedModel
from llamina.gguf import open_model
from llamina.models import build
from llamina.ops import Value, constant, embed, linear, pick, reshape
from llamina.plan import Plan, record
from llamina.plan.split import count_layers, split

Files = Callable[[str], Path]


def plan_of(path: Path) -> Plan:
    file = open_model(path)
    return record(build(file.metadata, weights_of(file), 64).forward)


def test_every_step_and_state_is_in_one_half(files: Files) -> None:
    plan = plan_of(files("llama4-moe"))
    assert count_layers(plan) == 4
    for layer in range(1, 5):
        first, second = split(plan, layer)
        assert (*first.steps, *second.steps) == plan.steps
        assert (*first.states, *second.states) == plan.states
        assert [state.layer for state in first.states] == list(range(layer))
        assert first.logits is second.rows and first.logits.shape == (256,) and first.logits.rows == "tokens"
        assert second.logits is plan.logits


def test_the_output_is_one_more_layer(files: Files) -> None:
    _, second = split(plan_of(files("llama-dense")), 2)
    assert [step.op for step in second.steps] == ["pick", "rms_norm", "linear"] and second.states == ()


def test_several_values_are_handed_over_as_one_row(files: Files) -> None:
    """This architecture's layers read the embeddings again."""
    first, second = split(plan_of(files("talkie-dense")), 1)
    assert first.steps[-1].op == "concat" and first.logits.shape == (512,)
    assert second.rows is not None and second.rows.shape == (512,)
    assert [step.op for step in second.steps[:2]] == ["slice", "slice"]


def test_what_is_a_view_is_copied() -> None:
    """Programs write their last value to a place of its own; a view has none."""
    w = {name: constant(name, np.ones((8, 8))) for name in ("token_embd.weight", "blk.0.w", "blk.1.w")}

    def forward(tokens: Value, positions: Value) -> Value:
        x = reshape(linear(embed(tokens, w["token_embd.weight"]), w["blk.0.w"]), 2, 4)
        return pick(linear(reshape(x, 8), w["blk.1.w"]))

    first, _ = split(record(forward), 1)
    assert first.steps[-1].op in ("linear", "scale") and first.logits.shape == (8,)


def test_layers_that_share_keys_stay_together(files: Files) -> None:
    """Layers 3 to 5 attend to the keys of layers 1 and 2."""
    plan = plan_of(files("gemma4-shared"))
    for layer, size in ((1, 256 + 32), (6, 256)):  # the first hands over what is mixed in behind later layers, too
        first, second = split(plan, layer)
        assert (*first.states, *second.states) == plan.states and len(plan.states) == 3
        assert first.logits.size >= size
    for layer in range(2, 6):
        with pytest.raises(UnsupportedModel, match="cannot be computed apart"):
            split(plan, layer)


def test_layers_that_are_repeated(files: Files) -> None:
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.ffn_down is computed after a step of layer 2"):
        split(plan_of(files("hrm_text-dense")), 2)
