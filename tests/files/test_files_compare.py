"""`llamina diff`: metadata, tensors, and the error between values."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from llamina.files import compare
from llamina.gguf import GGUF, Kind, ValueType, tensor_type, write
from llamina.quant import decode, encode

Invoke = Callable[..., Result]
F32, Q8_0, Q4_0 = (tensor_type(name) for name in ("F32", "Q8_0", "Q4_0"))
VALUES = np.random.default_rng(5).standard_normal((40, 96)).astype(np.float32)


def model(path: Path, **changes: Any) -> Path:
    """A small file; a change is a value, or a tensor, or None to leave it out."""
    contents: dict[str, Any] = {
        "general.architecture": "none", "size": 3, "list": ["a", "b"], "numbers": np.arange(4, dtype=np.int32),
        "t.one": (F32, VALUES), "t.two": (F32, VALUES[:3]), "t.three": (Q8_0, VALUES),
    }  # fmt: skip
    contents |= {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {k: v for k, v in contents.items() if v is not None and not k.startswith("t.")}
    tensors = [
        (name, part[1].shape, part[0], encode(part[1], part[0]))
        for name, part in contents.items()
        if name.startswith("t.") and part is not None
    ]
    write(path, metadata, tensors, metadata_types={"kind": Kind(ValueType.INT64)})
    return path


def test_equal_files(invoke: Invoke, tmp_path: Path) -> None:
    a, b = model(tmp_path / "a.gguf"), model(tmp_path / "b.gguf")
    result = invoke("diff", a, b)
    assert (result.exit_code, result.stdout) == (0, "no difference\n")
    told = json.loads(invoke("diff", a, b, "--tensors", "--json").stdout)
    assert told["equal"] is True and told["errors"] == {} and told["tensors"]["data"] == []
    assert invoke("diff", a, "nobody").exit_code == 3


def test_all_that_differs(invoke: Invoke, tmp_path: Path) -> None:
    a = model(tmp_path / "a.gguf")
    other = VALUES.copy()
    other[2, 5] += 0.5
    b = model(
        tmp_path / "b.gguf", size=4, list=["a", "c"], numbers=None, kind=1, t__one=(F32, other), t__two=None,
        t__three=(Q4_0, VALUES), t__four=(F32, VALUES[0]),
    )  # fmt: skip
    result = invoke("diff", a, b)
    assert result.exit_code == 1 and result.stdout.splitlines() == [
        "- numbers = [0, 1, 2, 3]",
        "+ kind = 1",
        "~ size: 3 (UINT32) → 4 (UINT32)",
        "~ list: ['a', 'b'] (ARRAY[STRING]) → ['a', 'c'] (ARRAY[STRING])",
        "- t.two F32 3x96",
        "+ t.four F32 96",
        "~ t.one F32 40x96: other data",
        "~ t.three Q8_0 40x96 → Q4_0 40x96",
    ]
    told = json.loads(invoke("diff", a, b, "--tensors", "--json").stdout)
    assert told["metadata"]["changed"] == {"size": [3, 4], "list": [["a", "b"], ["a", "c"]]}
    assert told["tensors"]["types"] == {"t.three": ["Q8_0", "Q4_0"]} and told["tensors"]["data"] == ["t.one"]
    one = told["errors"]["t.one"]
    assert one["max"] == pytest.approx(0.5, rel=1e-6) and one["rmse"] == pytest.approx(0.5 / VALUES.size**0.5, rel=1e-6)
    shapes = model(tmp_path / "c.gguf", t__one=(F32, VALUES[:7]))
    told = json.loads(invoke("diff", a, shapes, "--json").stdout)
    assert told["tensors"]["shapes"] == {"t.one": [[40, 96], [7, 96]]} and not told["equal"]


def test_errors_are_those_of_numpy(tmp_path: Path) -> None:
    with (
        GGUF.open(model(tmp_path / "a.gguf")) as a,
        GGUF.open(model(tmp_path / "b.gguf", t__one=(Q4_0, VALUES))) as b,
    ):
        (error,) = compare(a, b, errors=True).errors
        found = decode(b.tensors["t.one"].data, Q4_0, VALUES.shape).astype(np.float64)
    apart = found - VALUES
    assert error.rmse == pytest.approx(np.sqrt((apart**2).mean()), rel=1e-9)
    assert error.relative == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(VALUES.astype(np.float64)), rel=1e-9)
    assert error.max == np.abs(apart).max()
    cosine = (found * VALUES).sum() / np.linalg.norm(found) / np.linalg.norm(VALUES.astype(np.float64))
    assert error.cosine == pytest.approx(cosine, rel=1e-9) and 0.99 < error.cosine < 1


def test_what_is_left_out(invoke: Invoke, tmp_path: Path) -> None:
    a, b = model(tmp_path / "a.gguf"), model(tmp_path / "b.gguf", t__one=(F32, VALUES + 1), size=9)
    assert invoke("diff", a, b, "--no-metadata", "--no-data").exit_code == 0
    assert invoke("diff", a, b, "--no-metadata").stdout == "~ t.one F32 40x96: other data\n"
    assert invoke("diff", a, b, "--quiet").output == ""


def test_values_that_are_no_numbers(invoke: Invoke, tmp_path: Path) -> None:
    odd, zeros = VALUES.copy(), np.zeros_like(VALUES)
    odd[3, 3] = np.nan
    a = model(tmp_path / "a.gguf", t__one=(F32, VALUES), t__two=(F32, zeros))
    b = model(tmp_path / "b.gguf", t__one=(F32, odd), t__two=(F32, VALUES))
    told = json.loads(invoke("diff", a, b, "--tensors", "--json").stdout)
    assert set(told["errors"]["t.one"].values()) == {"nan"}
    assert told["errors"]["t.two"]["relative"] == "inf" and told["errors"]["t.two"]["cosine"] == 0.0
    assert invoke("diff", b, b, "--tensors").exit_code == 0, "NaN is where it was"


def test_a_quantized_model(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.gguf"
    assert invoke("quantize", stories, out, "Q8_0").exit_code == 0
    result = invoke("diff", stories, out, "--tensors")
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("blk.0.attn_q.weight ")]
    assert result.exit_code == 1 and len(rows) == 1
    assert float(rows[0][2]) < 0.01 and float(rows[0][4]) > 0.9999
