"""A plan as text: one line per step, with its weight, format, operands and settings."""

import re
from pathlib import Path

import pytest
from plan_files import write_llama

import llamina
from llamina.plan import describe, show


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = write_llama(tmp_path_factory.mktemp("plan") / "tiny.gguf")
    with llamina.load(path, backend="reference") as engine:
        return list(show(engine.runner.plan))


def test_a_line_per_step(lines: list[str]) -> None:
    for i, line in enumerate(lines):
        assert re.fullmatch(rf" *{i} \w+ .*(%\d+\[[\d, ]*\] )+→ (%\d+\[[\d, ]*\] ?)+( .*)?", line), line
    assert not any(line != line.rstrip() for line in lines)


def test_what_a_llama_does(lines: list[str]) -> None:
    words = [line.split() for line in lines]
    assert words[0][1:4] == ["embed", "F32", "token_embd"]
    assert words[-1][1:4] == ["linear", "F32", "output"]
    assert [w[1] for w in words].count("attend") == 2 and [w[1] for w in words].count("pick") == 1
    found = " ".join(w[3] for w in words if len(w) > 3)
    for name in ("blk.0.attn_q", "blk.1.ffn_down", "output_norm"):
        assert name in found
    q = next(line for line in lines if "blk.0.attn_q " in line)
    assert re.search(r"linear +F32 +blk.0.attn_q +%\d+\[32\] → %\d+\[32\]", q)
    norm = next(line for line in lines if "blk.0.attn_norm" in line)
    assert "rms_norm" in norm and "eps=" in norm
    attend = next(line for line in lines if " attend " in line)
    assert "blk.0.kv" in attend and "[4, 8]" in attend and "[2, 8]" in attend and "scale=0.35" in attend


def test_values_flow_forward(lines: list[str]) -> None:
    """Everything read was made by a line before (or is an input), and is made once."""
    made = {"%0", "%1"}
    for line in lines:
        inputs, outputs = (re.findall(r"%\d+", part) for part in line.split("→"))
        assert set(inputs) <= made and not set(outputs) & made
        made |= set(outputs)


def test_one_plan_whatever_the_capacity(tmp_path: Path, lines: list[str]) -> None:
    path = write_llama(tmp_path / "tiny.gguf")
    with llamina.load(path, backend="reference", context=17, step_tokens=3, max_sequences=2) as engine:
        assert list(show(engine.runner.plan)) == lines
        assert describe(engine.runner.plan.steps[0]) == lines[0].strip().removeprefix("0 ")
