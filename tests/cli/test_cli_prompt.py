"""Where `llamina run` has its prompt from: the argument, a file, and what is piped in."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Invoke = Callable[..., Result]
PROMPT_ONLY = "import sys; from llamina.cli.run import _prompt; print(repr(_prompt(sys.argv[1], None)))"


def asked(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, *arguments: Any, input: str | None = None) -> str:
    """The prompt that reaches the model."""
    found: list[str] = []

    def begin(engine: object, prompt: str, *rest: object) -> None:
        found.append(prompt)
        raise KeyboardInterrupt

    monkeypatch.setattr("llamina.cli.answer.begin", begin)
    assert invoke("run", *arguments, input=input).exit_code == 130
    return found[0]


def test_an_argument_and_what_is_piped_in(
    invoke: Invoke, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("Mia is a dog.\n")
    common = ("-m", stories)
    piped = "My cat is called Tom.\n"
    both = "What is my cat called?\n\nMy cat is called Tom.\n"
    assert asked(invoke, monkeypatch, "What is my cat called?", *common, input=piped) == both
    assert asked(invoke, monkeypatch, "-p", "What is my cat called?", *common, input=piped) == both
    assert asked(invoke, monkeypatch, *common, input=piped) == piped
    assert asked(invoke, monkeypatch, "Who?", *common, input="") == "Who?"
    three = asked(invoke, monkeypatch, "Who?", "--file", tmp_path / "file", *common, input=piped)
    assert three == "Who?\n\nMia is a dog.\n\n\nMy cat is called Tom.\n"


def test_both_reach_the_model(invoke: Invoke, stories: Path) -> None:
    """The tokens of both are counted."""

    def tokens(*arguments: str, input: str | None = None) -> int:
        told = invoke("run", *arguments, "-m", stories, "-n", "1", "--json", "--temp", "0", input=input).stdout
        return int(json.loads(told)["usage"]["prompt_tokens"])

    assert tokens("Once", input="Tom was a cat.") > tokens("Once") + 3


def run(stdin: Any, seconds: float = 30) -> str:
    """What the prompt is in a process with this stdin."""
    done = subprocess.run(
        [sys.executable, "-c", PROMPT_ONLY, "Hi"], stdin=stdin, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_stdin_may_be(tmp_path: Path) -> None:
    """A pipe, a file and a socket are read; a device, a closed descriptor and an empty file give nothing."""
    (tmp_path / "text").write_text("there")
    (tmp_path / "empty").touch()
    with (tmp_path / "text").open() as file:
        assert run(file) == repr("Hi\n\nthere")
    with (tmp_path / "empty").open() as file:
        assert run(file) == repr("Hi")
    assert run(subprocess.DEVNULL) == repr("Hi")
    closed = [sys.executable, "-c", PROMPT_ONLY, "Hi"]
    shell = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *closed], capture_output=True, text=True, timeout=30)
    assert shell.stdout.strip() == repr("Hi"), shell.stderr
    ours, theirs = socket.socketpair()
    ours.sendall(b"there")
    ours.close()
    with theirs:
        assert run(theirs) == repr("Hi\n\nthere")


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: opens a pseudo-terminal")
def test_a_terminal_is_not_read() -> None:
    ours, theirs = os.openpty()
    try:
        assert run(theirs) == repr("Hi")
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: waits with select")
def test_a_pipe_that_says_nothing_is_told(tmp_path: Path) -> None:
    """A service's or ssh's own pipe, left open: the user learns what is waited for."""
    command = [sys.executable, "-c", PROMPT_ONLY, "Hi"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        start = time.monotonic()
        assert b"< /dev/null" in process.stderr.readline() and time.monotonic() - start < 20
        process.stdin.write(b"there")
        process.stdin.close()
        assert process.stdout.read().decode().strip() == repr("Hi\n\nthere")


def test_two_arguments(invoke: Invoke) -> None:
    result = invoke("run", "smollm2", "hi")
    assert result.exit_code == 2
    assert "the model is given by -m, as in llamina run -m smollm2 hi" in result.stderr
    assert "put it in quotes" in invoke("run", "what", "is", "this?").stderr
