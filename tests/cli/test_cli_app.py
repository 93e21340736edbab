"""What all verbs share: help, errors, exit codes, and what they do not import."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from llamina import __version__
from llamina.cli.app import VERBS

Invoke = Callable[..., Result]


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").output == f"llamina {__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_verb(invoke: Invoke, flag: str) -> None:
    result = invoke(flag)
    assert result.exit_code == 0
    assert all(f"\n  {verb} " in result.output for verb in VERBS)


@pytest.mark.parametrize("verb", [[], ["plan"]], ids=["llamina", "plan"])
def test_no_command_means_the_help(invoke: Invoke, verb: list[str]) -> None:
    """All of it, line by line; the exit code is that of a missing command."""
    result = invoke(*verb)
    assert result.exit_code == 2 and result.stderr == invoke(*verb, "--help").stdout
    assert len(result.stderr.splitlines()) > 10 and "error" not in result.stderr.splitlines()[0]


@pytest.mark.parametrize("verb", [[verb] for verb in VERBS] + [["plan", "show"], ["plan", "diff"], ["ls"]])
def test_every_verb_has_help_with_examples(invoke: Invoke, verb: list[str]) -> None:
    result = invoke(*verb, "-h")
    assert result.exit_code == 0
    assert ("Examples:" in result.output and "--debug" in result.output) or verb[0] == "plan"


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["--frobnicate"],
        ["run", "x", "--frobnicate"],
        ["run", "a", "b"],
        ["run", "x", "-n", "many"],
    ],
)
def test_unknown_commands_and_options_are_usage_errors(invoke: Invoke, arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    assert not result.stdout


def test_a_missing_model_exits_with_3(invoke: Invoke, empty_store: Path) -> None:
    result = invoke("show", "nothing")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: 'nothing' is neither a file nor a pulled model")
    assert len(result.stderr.splitlines()) == 1


def test_a_damaged_file_exits_with_1(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    result = invoke("show", tmp_path / "bad.gguf")
    assert result.exit_code == 1 and result.stderr.startswith("error: ")


def test_a_bug_is_one_line_unless_debugging(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[str]:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("llamina.hub.models", broken)
    result = invoke("list")
    assert result.exit_code == 1
    assert result.stderr == "error: ZeroDivisionError: oops (a bug in llamina; --debug shows where)\n"
    for arguments in (["list", "--debug"], ["--debug", "list"]):
        assert "Traceback" in invoke(*arguments).stderr
    monkeypatch.setenv("LLAMINA_DEBUG", "1")
    assert "Traceback" in invoke("list").stderr


QUICK = """
import sys
from llamina.cli import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0, end
assert not {"numba", "llvmlite"} & sys.modules.keys()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "-h"],
        ["list"],
        ["show", "MODEL"],
        ["tokenize", "-m", "MODEL", "x"],
        ["plan", "show", "MODEL"],
    ],
)
def test_verbs_that_compute_nothing_do_not_import_a_compiler(arguments: list[str], stories: Path) -> None:
    named = [str(stories) if argument == "MODEL" else argument for argument in arguments]
    subprocess.run([sys.executable, "-c", QUICK, *named], check=True, capture_output=True)


def test_help_loads_nothing_heavy() -> None:
    """So that it is quick."""
    script = "import sys; from llamina.cli import main; sys.argv = ['llamina', '--help']\ntry:\n    main()\n"
    script += "finally:\n    sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "Usage" in done.stdout
    heavy = {"numpy", "numba", "llvmlite", "tokenizers", "jinja2", "huggingface_hub", "llguidance", "llamina.engine"}
    assert not heavy & set(done.stderr.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts(invoke: Invoke, shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0 and "_LLAMINA_COMPLETE" in result.output


@pytest.mark.parametrize(
    ("line", "word", "expected"),
    [("llamina to", "to", "plain\ttokenize\t"), ("llamina run --back", "--back", "plain\t--backend\t"),
     ("llamina run -m ", "", "plain\tsmollm2\t"), ("llamina run -m ./x", "./x", "file\t./x\t")],
)  # fmt: skip
def test_completion_of_powershell(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, line: str, word: str, expected: str
) -> None:
    for name, value in {"_LLAMINA_COMPLETE": "powershell_complete", "COMP_WORDS": line, "COMP_WORD": word}.items():
        monkeypatch.setenv(name, value)
    script = "from llamina.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert any(found.startswith(expected) for found in done.stdout.splitlines()), done.stderr


def test_completion_knows_verbs_and_models(empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    from llamina.cli import cli

    complete = ShellComplete(cli, {}, "llamina", "_LLAMINA_COMPLETE")
    assert {item.value for item in complete.get_completions([], "to")} == {"tokenize", "top"}
    assert {item.value for item in complete.get_completions(["run", "-m"], "smol")} == {"smollm2"}
    assert complete.get_completions(["run", "-m"], "./x")[0].type == "file"
