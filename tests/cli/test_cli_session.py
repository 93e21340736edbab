"""`llamina run --session`."""

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Invoke = Callable[..., Result]
OPTIONS = ("--temp", "0", "-n", "10", "-c", "512", "--json")


def test_a_conversation_over_several_runs(invoke: Invoke, smollm2: Path, tmp_path: Path) -> None:
    talk = tmp_path / "talk"
    common = ("run", "-m", smollm2, "--session", talk, *OPTIONS)
    first = json.loads(invoke(*common, "--system", "Answer briefly.", "What is the capital of France?").stdout)
    saved = talk.read_bytes()
    second = invoke(*common, "And what is it famous for?\n")
    assert second.exit_code == 0 and talk.read_bytes() != saved
    usage = json.loads(second.stdout)["usage"]
    assert usage["prompt_tokens"] > first["usage"]["total_tokens"]

    talk.write_bytes(saved)
    again = invoke(*common, "And what is it famous for?")
    assert json.loads(again.stdout)["text"] == json.loads(second.stdout)["text"]

    late = invoke(*common, "--system", "Be rude.", "Hello")
    assert late.exit_code == 2 and "leave it out" in late.stderr
    talk.write_bytes(saved[:-1])
    damaged = invoke(*common, "Hello")
    assert damaged.exit_code != 0 and "damaged" in damaged.stderr and talk.read_bytes() == saved[:-1]


def test_what_has_no_conversation(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    result = invoke("run", "-m", stories, "--session", tmp_path / "talk", "Once")
    assert result.exit_code == 2 and "no chat template" in result.stderr
    result = invoke("run", "-m", stories, "--session", tmp_path / "talk", "--raw", "Once")
    assert result.exit_code == 2 and "--raw" in result.stderr
    assert not (tmp_path / "talk").exists()
