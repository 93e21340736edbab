"""What `llamina gc` finds: partial downloads, shards without the others, blobs without links. Never models."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from fake_hub import FakeHub
from llamina import hub
from llamina.errors import DownloadError
from llamina.hub.hf_cache import lock_path, repo_folder

Start = Callable[..., FakeHub]
MODEL = os.urandom(100_000)


def found() -> set[tuple[str, str]]:
    return {(left.kind, left.path.name) for left in hub.leftovers()}


def broken_pull(server: FakeHub, name: str, where: str) -> None:
    """A pull that fails when it comes to the range or file of that name."""
    server.fault = lambda asked: 403 if where in f"{asked.path} {asked.range}" and asked.host == "cdn" else None
    with pytest.raises(DownloadError):
        hub.pull(name)
    server.fault = None


def test_nothing_is_left_of_a_pull_that_went_well(fake: Start) -> None:
    server = fake({"m.gguf": MODEL, "mmproj-F16.gguf": b"16"})
    hub.pull("user/repo")
    hub.pull(f"{server.cdn}/user/repo/m.gguf")
    assert hub.leftovers() == []


def test_partial_downloads(fake: Start, store: Path) -> None:
    server = fake({"m.gguf": MODEL})
    broken_pull(server, "user/repo", "bytes=65536")
    broken_pull(server, f"{server.cdn}/user/repo/m.gguf", "bytes=65536")
    (store / ".smollm2" / "0").mkdir(parents=True)
    (store / ".smollm2" / "0" / "part-00").write_bytes(b"12345")
    names = {path.suffix for path in (left.path for left in hub.leftovers())}
    assert {kind for kind, _ in found()} == {"partial"} and {".part", ".journal", ".smollm2"} >= names - {""}
    sizes = {left.path.name: left.size for left in hub.leftovers()}
    assert sizes[".smollm2"] == 5 and sizes[".m.gguf.part"] <= len(MODEL)
    for left in hub.leftovers():
        left.delete()
    assert hub.leftovers() == [] and hub.names() == []
    assert hub.pull("user/repo").read_bytes() == MODEL


def test_shards_without_the_others(fake: Start, store: Path) -> None:
    shards = {f"m-0000{n}-of-00002.gguf": os.urandom(1000 * n) for n in (1, 2)}
    server = fake(shards)
    broken_pull(server, "user/repo", "m-00002")
    broken_pull(server, f"{server.cdn}/user/repo/m-00001-of-00002.gguf", "m-00002")
    lonely = [left for left in hub.leftovers() if left.path.name == "m-00001-of-00002.gguf"]
    assert [(left.kind, left.size) for left in lonely] == [("partial", 1000)] * 2
    for left in lonely:
        left.delete()
    assert not list(store.glob("*.gguf"))
    assert not [path for path in repo_folder("user/repo").rglob("*") if path.is_file() and path.stat().st_size > 500]


def test_blobs_that_nothing_links_to(fake: Start) -> None:
    server = fake({"m.gguf": MODEL})
    old = hub.pull("user/repo")
    blobs = old.resolve().parent
    (blobs / "abc").write_bytes(b"left")
    (blobs / "def.incomplete").write_bytes(b"of the library")
    assert found() == {("blob", "abc"), ("partial", "def.incomplete")}
    with FileLock(lock_path("user/repo", "def")):
        assert found() == set(), "something of it is being fetched"
    for left in hub.leftovers():
        left.delete()
    assert [path.name for path in blobs.iterdir()] == [old.resolve().name]
    assert server.repos and old.read_bytes() == MODEL


def test_a_download_under_way_is_left_alone(store: Path) -> None:
    (store / ".m.gguf.part").write_bytes(b"x")
    with FileLock(store / ".m.gguf.lock"):
        assert found() == set()
    assert found() == {("partial", ".m.gguf.part")}
