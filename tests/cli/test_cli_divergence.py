"""`llamina perplexity --kl`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import llamina
from tales import TALE

Invoke = Callable[..., Result]


@pytest.fixture
def quantized(stories: Path, tmp_path: Path) -> Path:
    path = tmp_path / "q4_0.gguf"
    llamina.quantize(stories, path, "Q4_0")
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "tale.txt"
    path.write_text(TALE + "\n", encoding="utf-8")
    return path


def test_a_model_as_the_base(invoke: Invoke, stories: Path, quantized: Path, text: Path, tmp_path: Path) -> None:
    common = ("perplexity", text, "-m", quantized, "--kl", stories, "-c", "64")
    shown = invoke(*common)
    assert shown.exit_code == 0, shown.stderr
    first, second, third = shown.stdout.splitlines()
    assert first.startswith("perplexity 6.7") and "of 806 tokens, of the base 6.66" in first
    assert second.startswith("KL divergence 0.08") and "99 % 0.4" in second
    assert third.startswith("the same top token 83.") and "RMS 9." in third
    plot = tmp_path / "kl.png"
    told = json.loads(invoke(*common, "--json", "--chunks", "3", "--plot", plot).stdout)
    assert (told["windows"], told["window"], told["tokens"]) == (3, 64, 93)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_saved_logits_as_the_base(invoke: Invoke, stories: Path, quantized: Path, text: Path, tmp_path: Path) -> None:
    saved = tmp_path / "base.logits"
    common = ("-m", stories, "-c", "64", "--chunks", "2", "--json")
    plain = json.loads(invoke("perplexity", text, *common).stdout)
    assert json.loads(invoke("perplexity", text, *common, "--save-logits", saved).stdout) == pytest.approx(plain)
    live = json.loads(invoke("perplexity", text, "-m", quantized, "--kl", stories, *common[2:]).stdout)
    assert json.loads(invoke("perplexity", "-m", quantized, "--kl", saved, "--json").stdout) == live
    fewer = json.loads(invoke("perplexity", "-m", quantized, "--kl", saved, "--json", "--chunks", "1").stdout)
    assert fewer["windows"] == 1 and fewer["kl"]["mean"] != live["kl"]["mean"]
    with_text = invoke("perplexity", text, "-m", quantized, "--kl", saved)
    assert with_text.exit_code == 2 and "has the tokens of its text in it: give no other text" in with_text.stderr
    other_size = invoke("perplexity", "-m", quantized, "--kl", saved, "-c", "32")
    assert other_size.exit_code == 2 and "has windows of 64 tokens: leave out -c" in other_size.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--plot", "x.png"), "--plot draws what --kl finds"),
        (("--kl", "x", "--save-logits", "y"), "--kl does not go with --save-logits or --tokens"),
        (("--kl", "x", "--tokens"), "--kl does not go with --save-logits or --tokens"),
        (("--kl", "x", "--method", "overlap"), "--kl: these need --method llama.cpp"),
        (("--chunks", "1", "--method", "overlap"), "--chunks: these need --method llama.cpp"),
    ],
)
def test_options_that_do_not_go_together(
    invoke: Invoke, stories: Path, text: Path, options: tuple[str, ...], message: str
) -> None:
    refused = invoke("perplexity", text, "-m", stories, *options)
    assert refused.exit_code == 2 and message in refused.stderr


def test_a_base_with_another_vocabulary(
    invoke: Invoke, talking: Callable[[str], Path], stories: Path, text: Path
) -> None:
    refused = invoke("perplexity", text, "-m", stories, "--kl", talking("llama-dense"), "-c", "64")
    assert refused.exit_code == 2 and "it must have its vocabulary" in refused.stderr
