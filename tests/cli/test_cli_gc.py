"""`llamina gc`, and the kernels that it finds."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from filelock import FileLock

from llamina.backends.cpu.jit.cache import KernelFiles, machine

Invoke = Callable[..., Result]


@pytest.fixture
def leftovers(empty_store: Path) -> list[Path]:
    """A partial download, a folder of kernels for another machine, a kernel of older sources and one that is gone."""
    cache = empty_store.parent
    paths = [
        empty_store / ".m.gguf.part",
        cache / "kernels" / "other" / "rms_norm-0.kernel",
        cache / "kernels" / machine() / "rms_norm-0123456789abcdef.kernel",
        cache / "kernels" / machine() / "no_such-0123456789abcdef.kernel",
        cache / "cuda" / "no_such.kernel.0.cubin",
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    return paths


def test_listing_deletes_nothing(invoke: Invoke, leftovers: list[Path]) -> None:
    result = invoke("gc")
    assert result.exit_code == 0 and all(path.exists() for path in leftovers)
    kinds = [line.split("  ")[-1].strip() for line in result.stdout.splitlines()]
    assert kinds == ["KIND", "partial file", "old kernels", "old kernels"]
    assert result.stderr == "5.0 kB can be deleted: `llamina gc --delete`\n"
    rows = json.loads(invoke("gc", "--json").stdout)
    assert {(row["kind"], row["size"], row["deleted"]) for row in rows} == {
        ("partial", 1000, False),
        ("kernels", 3000, False),
        ("kernels", 1000, False),
    }


def test_copies(invoke: Invoke, empty_store: Path) -> None:
    """Models that were quantized on load, and shapes; not while one is being written."""
    cache = empty_store.parent
    made = [cache / "quantized" / "m-Q4_0-0123.gguf", cache / "shapes" / "llama-3-8b-Q4_K_M-v1.gguf"]
    broken = [path.with_name(f".{path.name}.01234567.part") for path in made]
    for path in (*made, *broken):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    with FileLock(cache / "quantized" / ".lock"):
        assert [row["path"] for row in json.loads(invoke("gc", "--copies", "--json").stdout)] == [
            str(broken[1]),
            str(made[1]),
        ]
    assert {row["path"] for row in json.loads(invoke("gc", "--json").stdout)} == set(map(str, broken))
    assert invoke("gc", "--delete").exit_code == 0 and all(path.exists() for path in made)
    assert invoke("gc", "--copies").stdout.count("made again") == 2
    assert invoke("gc", "--delete", "--copies").exit_code == 0
    assert not any(path.exists() for path in (*made, *broken))


def test_deleting(invoke: Invoke, leftovers: list[Path], stories: Path) -> None:
    model = leftovers[0].with_name("story.gguf")
    shutil.copy(stories, model)
    files = KernelFiles(leftovers[0].parents[1] / "kernels")
    files.write("rms_norm", b"current")
    assert [row["deleted"] for row in json.loads(invoke("gc", "--delete", "--json").stdout)] == [True] * 3
    assert not any(path.exists() for path in leftovers) and model.exists()
    assert files._path("rms_norm").read_bytes() == b"current"
    assert "there is nothing to delete" in invoke("gc", "--delete").stderr
