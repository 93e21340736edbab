"""`llamina verify`: files that are sound, and files that are not."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from llamina.gguf import tensor_type, write
from llamina.hub.catalogue import CATALOGUE, Entry

Invoke = Callable[..., Result]


def test_a_sound_file(invoke: Invoke, stories: Path) -> None:
    result = invoke("verify", stories)
    assert result.exit_code == 0 and "is sound: " in result.stdout
    digest = hashlib.sha256(stories.read_bytes()).hexdigest()
    assert invoke("verify", stories, "--sha256").stdout.splitlines()[0] == f"{digest}  {stories.name}"
    found = json.loads(invoke("verify", stories, "--sha256", "--json").stdout)
    assert found["sha256"] == {stories.name: digest} and found["mistakes"] == [] and found["tensors"] > 10


def test_values_that_are_no_numbers(invoke: Invoke, tmp_path: Path) -> None:
    values = np.ones((2, 32), np.float32)
    values[1, 3:5] = np.nan, np.inf
    kind = tensor_type("F32")
    tensors = [("good", (1, 32), kind, values[:1]), ("odd", (2, 32), kind, values)]
    write(tmp_path / "bad.gguf", {"general.architecture": "llama"}, tensors)
    result = invoke("verify", tmp_path / "bad.gguf")
    assert result.exit_code == 1 and result.stdout == "odd has 2 values that are NaN or infinite\n"
    assert invoke("verify", tmp_path / "bad.gguf", "--no-values").exit_code == 0
    assert json.loads(invoke("verify", tmp_path / "bad.gguf", "--json").stdout)["mistakes"]


def test_a_file_that_is_cut_off(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(stories.read_bytes()[:-100])
    result = invoke("verify", tmp_path / "cut.gguf")
    assert result.exit_code == 1 and result.stderr.startswith("error: ")
    assert invoke("verify", "nobody").exit_code == 3


def test_a_file_that_is_another(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("tiny", "", stories.name, "", "base", stories.stat().st_size, "0" * 64, ())
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    result = invoke("verify", stories, "--sha256", "--no-values")
    assert result.exit_code == 1 and f"{stories.name} has another SHA-256 than the catalogue's" in result.stdout
