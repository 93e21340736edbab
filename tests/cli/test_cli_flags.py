"""Other names of verbs and flags: llama.cpp's and older ones mean what the names in the help mean."""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from llamina.cli import cli
from llamina.cli.sampling import NUMBER_NAMES
from llamina.cli.serve import _translated

Invoke = Callable[..., Result]
NOT_OURS = ("--lora-scaled",)
DOCS = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")


def context(verb: str, *args: str) -> click.Context:
    command: click.Command = import_module(f"llamina.cli.{verb}").command
    return command.make_context(verb, list(args), parent=click.Context(cli, **cli.context_settings))


def parsed(verb: str, *args: str) -> dict[str, Any]:
    """What a verb's function would get; files by their names."""
    ctx = context(verb, *args)
    return {name: getattr(value, "name", value) for name, value in ctx.params.items()}


@pytest.mark.parametrize(
    ("verb", "there", "here"),
    [
        ("run", "-hfr u/r -p x -sys s -no-cnv --predict 7", "--hf u/r --prompt x --system s --raw -n 7"),
        ("run", "--hf-repo u/r --system-prompt s -md d.gguf", "-hf u/r --system s --draft d.gguf"),
        ("run", f"-f {__file__} -ctk q8_0 -ctv q8_0", f"--file {__file__} --kv-type q8_0"),
        ("run", "-fa on --jinja -st --no-display-prompt --no-context-shift -ctk f16", ""),
        ("run", "-fa -ctv f16 -b 2048 -ub 512", "-ub 512"),
        ("run", "-b 64", "-ub 64"),
        ("run", "-b 64 -ub 128", "-ub 64"),
        ("run", "-b 2048", ""),
        ("chat", "-sys s -cnv -mli -fa auto --n-predict 9", "--system s --max-tokens 9"),
        ("embed", "-fa 1 --embd-normalize 2 x --n-ctx 64", "--embd-normalize 2 x -c 64"),
        ("perplexity", f"-f {__file__} -b 256", f"--file {__file__} -ub 256"),
        ("tokenize", "--no-bos --no-parse-special x", "--no-special x"),
        ("detokenize", "--ids 1 2 3", "1 2 3"),
        ("bench", "--n-prompt 1,2 --n-gen 3 --n-depth 4 --repetitions 2", "-p 1,2 -n 3 -d 4 -r 2"),
        ("bench", "--n-predict 3 --iterations 2 -ctk q4_0 -ctv q4_0 -fa on", "-n 3 -r 2 --kv-type q4_0"),
        ("serve", "-hf u/r --models-dir m", "-m u/r -m m"),
        ("serve", "-a x,y -p 1 --ssl-key-file k --ssl-cert-file c", "--alias x,y --port 1 --keyfile k --certfile c"),
        ("serve", "-np 3 --api-key k --sleep-idle-seconds 5", "--max-sequences 3 --api-keys k --keep-alive 5"),
        (
            "serve",
            "-fa on --jinja -cb -kvu --cache-prompt --metrics --reranking --webui --models-max 2",
            "--max-models 2",
        ),
    ],
)
def test_other_names_mean_the_same(verb: str, there: str, here: str) -> None:
    assert parsed(verb, *there.split()) == parsed(verb, *here.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("-ctk q8_0", "keys are to be in q8_0 and values in f16"),
        ("-ctk q8_0 -ctv q4_0", "give both the same, as -ctk q8_0 -ctv q8_0"),
        ("-ctk q8_0 -ctv q8_0 --kv-type f16", "--kv-type is f16, and -ctk and -ctv are q8_0"),
        ("-ctk q5_1 -ctv q5_1", "'q5_1'"),
        ("-fa off", "leave -fa off out"),
        ("-b 0", "x>=1"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "serve"])
def test_what_cannot_be_is_an_error(invoke: Invoke, verb: str, args: str, message: str) -> None:
    result = invoke(verb, "x", *args.split())
    assert result.exit_code == 2 and message in result.stderr


def settings(*args: str) -> dict[str, Any]:
    ctx = context("serve", *args)
    flags = {name: value for name, value in ctx.params.items() if "__" in name or name in NUMBER_NAMES}
    return _translated(ctx, flags)


def test_a_server_has_the_sampling_that_its_flags_give() -> None:
    assert settings("--temp", "0.2", "--top-k", "7") == {"defaults__sampling": "temperature=0.2,top_k=7"}
    assert settings("--sampling", "min_p=0.1", "-s", "3")["defaults__sampling"] == "min_p=0.1,seed=3"
    assert settings("-ctk", "q8_0", "-ctv", "q8_0") == {"defaults__kv_type": "q8_0"}
    assert settings("-b", "64") == {"defaults__step_tokens": 64} and settings("-b", "2048") == {}
    assert settings("-b", "64", "-ub", "32") == {"defaults__step_tokens": 32}


def test_a_server_takes_them(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    args = ["--check", "--temp", "0.2", "-ctk", "f32", "-ctv", "f32", "-ub", "64", "--data", tmp_path]
    assert invoke("serve", stories, *args).stdout.startswith("the settings are fine")
    assert "temperature" in invoke("serve", stories, "--check", "--temp", "-7").stderr


def test_older_names_of_verbs(invoke: Invoke, stories: Path, empty_store: Path) -> None:
    assert invoke("info", "-m", stories, "--json").stdout == invoke("show", stories, "--json").stdout
    assert invoke("completions", "bash").stdout == invoke("completion", "bash").stdout
    assert invoke("hub", "list", "--json").stdout == invoke("list", "--json").stdout == "[]\n"
    assert invoke("hub", "pull", "nobody").stderr == invoke("pull", "nobody").stderr
    assert invoke("hub", "rm", "nobody").exit_code == 3
    assert "hub" not in invoke("--help").stdout
    for args in (["show"], ["show", "a", "-m", "b"]):
        assert invoke(*args).exit_code == 2


def test_tokens_by_other_names(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Once upon")
    plain = invoke("tokenize", "-m", stories, "Once upon").stdout
    for args in (["-p", "Once upon"], ["-f", tmp_path / "text"]):
        assert invoke("tokenize", "-m", stories, *args).stdout == plain
    assert invoke("tokenize", "-m", stories, "--stdin", input="Once upon").stdout == plain
    counted = invoke("tokenize", "-m", stories, "--show-count", "Once upon").stdout
    assert counted == f"{plain}{len(plain.splitlines())} tokens\n"
    found = json.loads(invoke("tokenize", "-m", stories, "--format", "json", "Once upon").stdout)
    ids = [str(token) for token in found["tokens"]]
    assert invoke("detokenize", "-m", stories, "--ids", *ids).stdout.strip() == "Once upon"
    for twice in (["-p", "b"], ["--stdin"]):
        assert "given twice" in invoke("tokenize", "-m", stories, "a", *twice).stderr


def test_how_a_model_is_pulled(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("llamina.hub.pull", lambda name, progress, **given: asked.append(given) or tmp_path / "x.gguf")
    invoke("pull", "-q", "u/r")
    flags = ["--file", "x-Q8_0.gguf", "--revision", "v1", "--force", "--verify-sha256", "ab", "--no-mmproj"]
    invoke("pull", "-q", "hf:u/r", *flags)
    assert asked == [
        {"file": None, "revision": None, "force": False, "sha256": None, "mmproj": True},
        {"file": "x-Q8_0.gguf", "revision": "v1", "force": True, "sha256": "ab", "mmproj": False},
    ]
    monkeypatch.undo()
    twice = invoke("pull", "u/r:Q8_0", "--file", "x.gguf")
    assert twice.exit_code == 2 and "u/r:Q8_0 names Q8_0, and file is x.gguf: give one of them" in twice.stderr


@pytest.mark.parametrize("verb", [["pull", "smollm2"], ["run", "-m", "smollm2", "x"], ["tokenize", "-m", "u/r", "x"]])
def test_offline(invoke: Invoke, empty_store: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]) -> None:
    monkeypatch.setenv("LLAMINA_OFFLINE", "0")  # as it is after the test
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    result = invoke(*verb, "--offline")
    assert result.exit_code == 1 and "is not here, and LLAMINA_OFFLINE is set: unset it" in result.stderr


def test_every_flag_of_the_table_is_one(invoke: Invoke) -> None:
    """The page names no flag that its verb does not know."""
    table = DOCS[DOCS.index("## llama.cpp's flags") :]
    verbs: list[str] = []
    seen = 0
    for there, here in re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE):
        if "`llama-" in there:
            verbs = re.findall(r"`(\w[\w-]*)`", here)
            continue
        known = {flag for verb in verbs for flag in _flags(verb)}
        for flag in re.findall(r"--?[a-zA-Z][\w-]*\*?", re.sub(r"[`,;|\\]", " ", there)):
            same = [name for name in known if name == flag or (flag[-1] == "*" and name.startswith(flag[:-1]))]
            assert same or flag in NOT_OURS, f"{verbs} {flag}"
            seen += 1
    assert seen > 80


def _flags(verb: str) -> set[str]:
    command: click.Command = import_module(f"llamina.cli.{verb.replace('-', '_')}").command
    return {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
