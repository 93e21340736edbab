"""`llamina auto-quantize`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from llamina.gguf import GGUF
from tales import TALE

Invoke = Callable[..., Result]


def test_auto_quantize(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    dry = json.loads(invoke("auto-quantize", stories, out, "--target", "6bpw", "--dry-run", "--json").stdout)
    assert not out.exists() and 5 < dry["bits_per_weight"] <= 6
    result = invoke("auto-quantize", stories, out, "--target", "6bpw")
    assert (result.exit_code, result.stdout) == (0, f"{out}\n"), result.stderr
    assert "bits per weight" in result.stderr
    with GGUF.open(out) as file:
        assert {t.name: t.type.name for t in file.tensors.values()} == {n: t["to"] for n, t in dry["tensors"].items()}
    shown = invoke("auto-quantize", stories, out, "--target", "6", "--dry-run")
    assert shown.stdout.splitlines()[0].split() == ["tensor", "shape", "type", "size", "error"]
    again = invoke("auto-quantize", stories, out, "--target", "6")
    assert again.exit_code == 2 and "exists: choose another name" in again.stderr


def test_sensitivities(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    """What is measured on a text has other tensors get the bits, within the same budget."""
    (tmp_path / "tale.txt").write_text(TALE, encoding="utf-8")
    common = ("auto-quantize", stories, tmp_path / "out.gguf", "--target", "5.5", "--dry-run", "--json")
    plain = json.loads(invoke(*common).stdout)
    result = invoke(*common, "--text", tmp_path / "tale.txt", "--chunks", "1")
    told = json.loads(result.stdout)
    assert told["bits_per_weight"] <= 5.5 and told["tensors"] != plain["tensors"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "4.2mb"), "is not a number of bits per weight"),
        (("--target", "0.5bpw"), "is not a number of bits per weight"),
        ((), "--target"),
        (("--target", "2bpw"), "the target is too small: at least"),
        (("--target", "6", "--types", "q9_9"), "is no type to quantize to"),
    ],
)
def test_mistakes(invoke: Invoke, stories: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    result = invoke("auto-quantize", stories, tmp_path / "out.gguf", *options)
    assert result.exit_code == 2 and message in result.stderr and not list(tmp_path.iterdir())
