"""Answers that are cut, and contexts that are full."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import llamina

Invoke = Callable[..., Result]
GREEDY = ("--temp", "0", "-t", "1")


def test_the_limit_of_tokens(invoke: Invoke, stories: Path) -> None:
    common = ("run", "Once upon a time", "-m", stories, "-n", "11", *GREEDY)
    result = invoke(*common)
    assert result.stderr.splitlines()[0] == "(cut: the answer reached -n 11 tokens)"
    assert "cut" not in result.stdout and invoke(*common, "-q").stderr == ""
    assert "(cut: the answer reached -n 11 tokens)" in invoke(*common, "--verbose").stderr


def test_an_answer_that_ends_is_not_cut(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once", "-m", stories, "--choice", "yes", *GREEDY)
    assert result.exit_code == 0 and "cut" not in result.stderr


def test_a_full_context(invoke: Invoke, stories: Path) -> None:
    common = ("run", "Once upon a time", "-m", stories, "-n", "100", "-c", "32", *GREEDY)
    result = invoke(*common)
    assert "(cut: the context of 32 tokens is full; raise -c or use --context-shift)" in result.stderr
    told = json.loads(invoke(*common, "--json", "--context-shift").stdout)
    assert len(told["tokens"]) == 100 and told["usage"]["completion_tokens"] == 100


def test_a_prompt_beyond_the_context(invoke: Invoke, stories: Path) -> None:
    common = ("run", "Once upon a time, there was a little girl named Lily.", "-m", stories, "-c", "8", "-n", "5")
    result = invoke(*common, *GREEDY)
    assert result.exit_code == 2
    assert "the context holds 8: raise -c, use --context-shift to drop old tokens, or shorten" in result.stderr
    assert "truncate" not in result.stderr and "load" not in result.stderr
    assert invoke(*common, *GREEDY, "--context-shift").exit_code == 0
    text = invoke("embed", "Once upon a time, there was a little girl.", "-m", stories, "-c", "8")
    assert text.exit_code == 2 and "the context holds 8: raise -c, or shorten the text" in text.stderr


def test_what_is_kept(invoke: Invoke, stories: Path) -> None:
    common = ("run", "Once upon a time", "-m", stories, "-n", "100", "-c", "32", *GREEDY)
    kept, dropped = (invoke(*common, "--context-shift", *keep).stdout for keep in (["--keep", "5"], []))
    assert kept != dropped and kept[:30] == dropped[:30], "the same until the context is full"
    result = invoke(*common, "--keep", "5")
    assert result.exit_code == 2 and "add --context-shift" in result.stderr
    result = invoke(*common, "--context-shift", "--keep", "31")
    assert result.exit_code == 2 and "--keep is 31" in result.stderr and "raise -c" in result.stderr


@pytest.mark.parametrize("flags", [["--seed", "-1"], []])
def test_the_seed_is_told(invoke: Invoke, stories: Path, flags: list[str]) -> None:
    """A random one too, so that the answer can be had again."""
    common = ("run", "Once", "-m", stories, "-n", "30", "--temp", "1.5", "-t", "1", "--json")
    first, second = (json.loads(invoke(*common, *flags).stdout) for _ in range(2))
    assert first["seed"] != second["seed"] and first["text"] != second["text"]
    again = json.loads(invoke(*common, "--seed", first["seed"]).stdout)
    assert (again["seed"], again["text"]) == (first["seed"], first["text"])


def test_the_seed_is_told_in_words(invoke: Invoke, stories: Path) -> None:
    result = invoke("run", "Once", "-m", stories, "-n", "3", "--seed", "7", "--verbose", "-t", "1")
    assert "seed:                 7\n" in result.stderr


@pytest.mark.parametrize("seed", ["-2", str(1 << 64), "x"])
def test_seeds_that_are_none(invoke: Invoke, stories: Path, seed: str) -> None:
    result = invoke("run", "Once", "-m", stories, "--seed", seed)
    assert result.exit_code == 2 and "--seed" in result.stderr and seed in result.stderr
    assert seed == "x" or f"-1<=x<={(1 << 64) - 1}" in result.stderr


def test_more_threads_than_cores(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int | None] = []
    honest = llamina.load

    def load(*args: object, threads: int | None = None, **options: Any) -> llamina.Engine:
        used.append(threads)
        return honest(stories, threads=1)

    monkeypatch.setattr("llamina.engine.load", load)
    monkeypatch.setattr("llamina.cli.options.cores", lambda: 2)
    common = ("run", "Once", "-m", stories, "-n", "2", "--temp", "0")
    result = invoke(*common, "-t", "1000")
    assert result.exit_code == 0 and used == [2]
    warning = "warning: 1000 threads are asked for and there are 2 usable cores: using 2 threads\n"
    assert result.stderr.startswith(warning) and invoke(*common, "-q", "-t", "1000").stderr == warning
    assert "warning" not in invoke(*common, "-t", "2").stderr
    monkeypatch.setenv("LLAMINA_THREADS", "64")
    assert invoke(*common).stderr.startswith("warning: 64 threads")
