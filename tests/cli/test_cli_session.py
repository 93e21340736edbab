"""`llamina run --session`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import llamina
from llamina.cli.session_lock import held

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


def test_what_has_no_conversation(
    invoke: Invoke, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said from the metadata, before anything is compiled."""
    monkeypatch.setattr("llamina.engine.load", lambda *a, **k: pytest.fail("it loaded the model"))
    result = invoke("run", "-m", stories, "--session", tmp_path / "talk", "Once")
    assert result.exit_code == 2 and "no chat template" in result.stderr
    result = invoke("run", "-m", stories, "--session", tmp_path / "talk", "--raw", "Once")
    assert result.exit_code == 2 and "--raw" in result.stderr
    result = invoke("run", "-m", stories, "--system", "Be brief.", "Once")
    assert result.exit_code == 2 and "no chat template" in result.stderr
    assert not (tmp_path / "talk").exists()


def test_a_full_context(invoke: Invoke, smollm2: Path, tmp_path: Path) -> None:
    """Told, with what helps; and the conversation goes on with --context-shift."""
    common = ("run", "-m", smollm2, "--session", tmp_path / "talk", "--temp", "0", "-c", "64", "-n", "20")
    assert "cut: the answer reached -n 20 tokens" in invoke(*common, "Hello, who are you?").stderr
    full = invoke(*common, "And who am I, if I am not you and you are not me?")
    assert full.exit_code == 2 and "use --context-shift to drop old tokens" in full.stderr
    saved = (tmp_path / "talk").read_bytes()
    for question in ("And who am I, if I am not you and you are not me?", "And you?"):
        went_on = invoke(*common, "--context-shift", "--keep", "8", question)
        assert went_on.exit_code == 0 and went_on.stdout.strip()
    assert (tmp_path / "talk").read_bytes() != saved


def test_two_at_once_lose_no_turn(smollm2: Path, tmp_path: Path) -> None:
    """The second waits for the first, and says so."""
    talk = tmp_path / "talk"
    common = [sys.executable, "-m", "llamina", "run", "-m", str(smollm2), "--session", str(talk), *OPTIONS]
    processes = [
        subprocess.Popen(
            [*common, question], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for question in ("My cat is called Tom.", "My dog is called Rex.", "My cow is called Ada.")
    ]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    prompts = sorted(json.loads(out)["usage"]["prompt_tokens"] for out, _ in said)
    assert prompts[0] + 20 < prompts[1] and prompts[1] + 20 < prompts[2], "each turn has those before it in front"
    with llamina.load(smollm2, context=512) as engine:
        messages = llamina.Session.load(engine, talk).messages
    asked = [message["content"] for message in messages if message["role"] == "user"]
    assert len(messages) == 6 and sorted(asked) == [
        f"My {x}." for x in ("cat is called Tom", "cow is called Ada", "dog is called Rex")
    ]


HOLDER = """
import sys
from llamina.cli.session_lock import held

with held(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_whoever_waits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talk, heard = str(tmp_path / "talk"), list[str]()
    command = [sys.executable, "-c", HOLDER, talk]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout and other.stdout.readline() == "held\n"

        def note(text: str) -> None:
            assert other.stdin and other.poll() is None
            heard.append(text)
            other.stdin.write("\n")
            other.stdin.flush()

        monkeypatch.setattr("llamina.cli.session_lock.note", note)
        with held(talk):
            assert heard == [f"waiting for another run that has {talk}"]
    with held(talk):
        assert len(heard) == 1


def test_a_folder_that_is_not_there(invoke: Invoke, smollm2: Path, tmp_path: Path) -> None:
    result = invoke("run", "-m", smollm2, "--session", tmp_path / "no" / "talk", "Hello")
    assert result.exit_code == 2 and "does not exist: create it" in result.stderr
