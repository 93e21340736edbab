"""Flags in place of what a model's file says: its chat template, its RoPE settings."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]
SHORT = ["--temp", "0", "-n", "4", "-c", "256", "--json", "--logprobs", "0", "-q"]


def test_a_template_by_name(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    """The model has none: with one, a prompt is a message."""
    (tmp_path / "own.jinja").write_text("{{ messages[0].content }} upon")
    plain = invoke("run", "-m", stories, "Once", *SHORT)
    named = invoke("run", "-m", stories, "Once", "--chat-template", "chatml", "--system", "S", *SHORT)
    filed = invoke("run", "-m", stories, "Once", "--chat-template-file", tmp_path / "own.jinja", *SHORT)
    counts = [json.loads(result.stdout)["usage"]["prompt_tokens"] for result in (plain, named, filed)]
    assert counts[1] > counts[2] > counts[0]


def test_rope(invoke: Invoke, stories: Path) -> None:
    def answer(*flags: str) -> list[float]:
        found = json.loads(invoke("run", "-m", stories, "Once upon a time", *flags, *SHORT).stdout)
        return [token["logprob"] for token in found["logprobs"]]

    plain = answer()
    assert answer("--rope-freq-base", "10000") == plain == answer("--rope-scaling", "none")
    assert answer("--rope-freq-base", "30") != plain
    assert answer("--rope-scale", "8") == answer("--rope-freq-scale", "0.125") != plain
    assert answer("--rope-scale", "8", "--rope-scaling", "yarn", "--yarn-orig-ctx", "16") != answer("--rope-scale", "8")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--chat-template", "chatlm"], "chat_template is 'chatlm'"),
        (["--chat-template", "{% if"], "not valid Jinja"),
        (["--chat-template", "chatml", "--chat-template-file", __file__], "give one of them"),
        (["--rope-scale", "2", "--rope-freq-scale", "0.5"], "give one of them"),
        (["--rope-scale", "0"], "above 0"),
        (["--rope-freq-base", "-1"], "rope_freq_base is -1.0"),
        (["--rope-scaling", "dynamic"], "'dynamic'"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "serve"])
def test_refusals_before_anything_is_fetched(invoke: Invoke, verb: str, flags: list[str], message: str) -> None:
    result = invoke(verb, "-m", "nobody/nothing", *flags)
    assert result.exit_code == 2 and message in result.stderr


def test_a_server_elsewhere_has_its_own(invoke: Invoke) -> None:
    result = invoke("chat", "--url", "http://127.0.0.1:1", "--chat-template", "chatml")
    assert result.exit_code == 2 and "leave --chat-template out" in result.stderr


def test_a_server_takes_them_for_one_model(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    args = ["--check", "--data", tmp_path, "--rope-scale", "2", "--chat-template", "llama3"]
    assert invoke("serve", stories, *args).stdout.startswith("the settings are fine")
    assert "belong to one model" in invoke("serve", *args).stderr
