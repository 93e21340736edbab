"""`llamina plan show` and `llamina plan diff`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from llamina.backends.cpu.runtime.call import LinkedCall
from llamina.engine.diff import distance

Invoke = Callable[..., Result]


def test_show(invoke: Invoke, stories: Path) -> None:
    lines = invoke("plan", "show", stories).stdout.splitlines()
    assert lines[0].split()[:4] == ["0", "embed", "F32", "token_embd"]
    assert any("attend" in line and "blk.4.kv" in line for line in lines)


def test_diff_agrees(invoke: Invoke, stories: Path) -> None:
    result = invoke("plan", "diff", stories)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == len(invoke("plan", "show", stories).stdout.splitlines())
    assert "steps agree" in result.stderr and "the logits of the whole model differ by" in result.stderr


def test_diff_as_json(invoke: Invoke, stories: Path) -> None:
    told = json.loads(invoke("plan", "diff", stories, "-p", "Once upon a time", "--json").stdout)
    assert told["first_over"] is None and told["end_to_end"] < 1e-5
    assert all(step["error"] <= step["tolerance"] == 1e-6 for step in told["steps"])


def test_diff_names_the_first_step_that_differs(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [line.split()[:4] for line in invoke("plan", "show", stories).stdout.splitlines()]
    broken = next(int(index) for index, *words in names if words[-1] == "blk.2.attn_norm")
    honest = LinkedCall.arguments

    def damaged(self: LinkedCall) -> Any:
        if self.call.step == broken:
            self.call.args["eps"] = 0.5
        return honest(self)

    monkeypatch.setattr(LinkedCall, "arguments", damaged)
    result = invoke("plan", "diff", stories)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].split()[0] == str(broken) and "over the tolerance" in result.stdout
    assert f"step {broken} (rms_norm blk.2.attn_norm)" in result.stderr and "is the first that differs" in result.stderr
    told = json.loads(invoke("plan", "diff", stories, "--all", "--json").stdout)
    # The steps after it get what the CPU made of it, so they are right again.
    assert told["first_over"] == broken and sum(step["over"] for step in told["steps"]) == 1


def test_diff_of_quantized_weights(invoke: Invoke, smollm2: Path) -> None:
    told = json.loads(invoke("plan", "diff", smollm2, "--json").stdout)
    errors = {kind: [s["error"] for s in told["steps"] if s["op"].endswith("linear") == kind] for kind in (True, False)}
    assert told["first_over"] is None
    assert 1e-6 < max(errors[True]) < 5e-3 and max(errors[False]) < 1e-9


def test_a_tolerance_of_ones_own(invoke: Invoke, stories: Path) -> None:
    result = invoke("plan", "diff", stories, "--tolerance", "0")
    assert result.exit_code == 1


def test_distance() -> None:
    values = np.array([3.0, 4.0], np.float32)
    assert distance(values, values) == 0
    assert distance(values + np.float32([0.5, 0]), values) == pytest.approx(0.25 / 25)
    assert distance(np.array([1, 2]), np.array([1, 3])) == 0.5
    assert np.isnan(distance(np.array([np.nan]), np.array([1.0])))
