"""`llamina imatrix`."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from llamina.quantization import Imatrix
from tales import TALE

Invoke = Callable[..., Result]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "tale.txt"
    path.write_text(TALE + "\n", encoding="utf-8")
    return path


def test_imatrix(invoke: Invoke, stories: Path, golden: Callable[[str], Path], text: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.gguf"
    common = ("-m", stories, "-c", "64", "-o", out)
    result = invoke("imatrix", text, *common, "--process-output")
    assert (result.exit_code, result.stdout) == (0, f"{out}\n"), result.stderr
    assert "36 matrices, 26 chunks of 64 tokens" in result.stderr
    found, expected = Imatrix.read(out), Imatrix.read(golden("stories260K_imatrix.gguf"))
    assert found.datasets == [str(text)] and found.sums.keys() == expected.sums.keys()
    for name, sums in expected.sums.items():
        assert np.abs(found.sums[name] - sums).max() < 1e-3 * sums.max()
    refused = invoke("imatrix", text, *common)
    assert refused.exit_code == 2 and "exists: choose another name with -o, or add --force" in refused.stderr
    told = json.loads(invoke("imatrix", *common, "--force", "--chunks", "2", "--json", input=TALE).stdout)
    assert told["chunks"] == 2 and told["tensors"] == 35 and told["datasets"] == []


def test_files_are_merged(invoke: Invoke, stories: Path, text: Path, tmp_path: Path) -> None:
    one, two, both = tmp_path / "1.gguf", tmp_path / "2.gguf", tmp_path / "both.gguf"
    common = ("-m", stories, "-c", "64", "-q")
    assert invoke("imatrix", text, *common, "-o", one, "--chunks", "1").exit_code == 0
    grown = invoke("imatrix", text, *common, "-o", two, "--in-file", one, "--chunk", "1", "--chunks", "1")
    assert grown.exit_code == 0, grown.stderr
    assert invoke("imatrix", "--in-file", one, "--in-file", two, "-o", both).exit_code == 0
    first, second, whole = (Imatrix.read(path) for path in (one, two, both))
    assert (first.chunks, second.chunks, whole.chunks) == (1, 2, 3) and whole.datasets == [str(text)] * 3
    name = "blk.0.attn_q.weight"
    assert np.allclose(whole.sums[name], first.sums[name] + second.sums[name])
    assert (second.sums[name] > first.sums[name]).all()
    older = tmp_path / "both.dat"
    assert invoke("imatrix", "--in-file", both, "-o", older, "--output-format", "dat").exit_code == 0
    mine, theirs = whole.importances(name), Imatrix.read(older).importances(name)
    assert mine is not None and theirs is not None and np.allclose(mine, theirs)
    refused = invoke("imatrix", "--in-file", one, "-o", tmp_path / "none", "--chunks", "3")
    assert refused.exit_code == 2 and "there is no text" in refused.stderr
    assert not (tmp_path / "none").exists()
