"""llamina.gguf.huge_pages: the same bytes at the same addresses, in other pages."""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from llamina.gguf import GGUF, huge_pages, tensor_type, write
from skips import needs

pytestmark = needs("hardware", huge_pages.supported(), "Linux with transparent huge pages")
NUMBERS = np.random.default_rng(5).random((16, 1 << 17), np.float32)  # 8 MB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    write(path, {"general.architecture": "llama"}, [("w", (16, 1 << 17), tensor_type("F32"), NUMBERS)])
    return path


def test_the_same_bytes(file: Path) -> None:
    opened = GGUF.open(file)
    before = opened.tensors["w"].data
    moved = opened.use_huge_pages(2)
    assert 6 << 20 <= moved <= 8 << 20 and moved % huge_pages.PAGE == 0
    assert np.array_equal(before.view(np.float32).reshape(NUMBERS.shape), NUMBERS)
    assert opened.tensors["w"].data.ctypes.data == before.ctypes.data
    assert opened.use_huge_pages(2) == 0  # it was done


IN_A_PROCESS = """
import gc, pathlib, re, sys
from llamina.gguf import GGUF

def huge():
    return 1024 * int(re.search(r"AnonHugePages: +(\\d+) kB", pathlib.Path("/proc/self/smaps_rollup").read_text())[1])

before = huge()
opened = GGUF.open(sys.argv[1])
moved = opened.use_huge_pages(1)
taken = huge() - before
del opened
gc.collect()
print(moved, taken, huge() - before)
"""


def test_pages_are_huge_and_given_back(file: Path) -> None:
    """In a process of its own: others' pages become huge, or small again, at any time."""
    told = subprocess.run([sys.executable, "-c", IN_A_PROCESS, str(file)], capture_output=True, text=True, check=True)
    moved, taken, left = map(int, told.stdout.split())
    few = moved // 2
    assert abs(left) < few
    assert taken < few or abs(taken - moved) < few  # none if memory is too fragmented


def test_the_file_may_change_afterwards(file: Path) -> None:
    opened = GGUF.open(file)
    moved = opened.use_huge_pages(1)
    bytes_ = opened.tensors["w"].data.reshape(-1).view(np.uint8)
    start = -bytes_.ctypes.data % huge_pages.PAGE
    os.truncate(file, 0)
    kept = bytes_[start : start + moved - huge_pages.PAGE]
    assert np.array_equal(kept, NUMBERS.reshape(-1).view(np.uint8)[start : start + len(kept)])


def test_others_read_meanwhile(file: Path) -> None:
    files, ended, wrong = [GGUF.open(file) for _ in range(20)], Event(), list[int]()
    now = files[0]

    def read() -> None:
        while not ended.is_set():
            wrong.append(int((now.tensors["w"].data.view(np.float32).reshape(NUMBERS.shape) != NUMBERS).sum()))

    reader = Thread(target=read)
    reader.start()
    for now in files:
        seen = len(wrong)
        while len(wrong) == seen:
            time.sleep(0.001)
        assert now.use_huge_pages(2)
    ended.set()
    reader.join()
    assert len(wrong) >= len(files) and not any(wrong)


@pytest.mark.parametrize("text", ["always madvise [never]\n", None], ids=["never", "a kernel without"])
def test_systems_without(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    if text:
        (tmp_path / "enabled").write_text(text)
    monkeypatch.setattr(huge_pages, "ENABLED", tmp_path / "enabled")
    assert GGUF.open(file).use_huge_pages(1) == 0


def test_a_kernel_that_cannot_move_pages(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "_MREMAP_DONTUNMAP", 64)  # a flag that there is not
    opened = GGUF.open(file)
    assert opened.use_huge_pages(1) == 0
    assert np.array_equal(opened.tensors["w"].data.view(np.float32).reshape(NUMBERS.shape), NUMBERS)


def test_data_in_memory_stays(file: Path) -> None:
    assert GGUF.from_bytes(file.read_bytes()).use_huge_pages(1) == 0


def test_progress(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, int, int]]()
    GGUF.open(file).use_huge_pages(1, lambda *what: told.append(what))
    assert told == []  # it was quick
    monkeypatch.setattr(huge_pages, "PATIENCE", 0)
    monkeypatch.setattr(huge_pages, "PIECE", 2 << 20)
    moved = GGUF.open(file).use_huge_pages(2, lambda *what: told.append(what)) >> 20
    assert told == [("reading weights", n, moved) for n in range(0, moved, 2)] + [("", moved, moved)]
