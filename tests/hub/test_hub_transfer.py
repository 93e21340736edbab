"""Bytes over HTTP: ranges, resuming, faults of servers, and what is refused."""

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_hub import Asked, FakeHub
from llamina import hub
from llamina.errors import DownloadError
from llamina.hub import fetching, transfer
from llamina.hub.hf_cache import repo_folder
from llamina.hub.journal import Journal
from llamina.hub.web import Web

Start = Callable[..., FakeHub]
MODEL = os.urandom(1 << 20)
FILES = {"m-Q4_K_M.gguf": MODEL}


def blob(content: bytes = MODEL) -> Path:
    return repo_folder("user/repo") / "blobs" / hashlib.sha256(content).hexdigest()


def partial() -> Path:
    return fetching.partial_path(blob())


def first_byte(asked: Asked) -> int:
    """Of the range that is asked for; -1 for other requests."""
    if asked.range is None or asked.range == "bytes=0-0":
        return -1
    return int(asked.range.removeprefix("bytes=").partition("-")[0])


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return found


def test_ranges_by_several_connections(fake: Start) -> None:
    server = fake(FILES)
    seen: list[tuple[str, int, int]] = []
    path = hub.pull("user/repo", lambda *step: seen.append(step))
    assert path.read_bytes() == MODEL and path.resolve() == blob().resolve()
    assert len(server.ranges_asked()) == transfer.CONNECTIONS
    assert merged(server.ranges_asked()) == [(0, len(MODEL))], "each byte once"
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("user/repo:Q4_K_M", len(MODEL), len(MODEL))
    assert not list(blob().parent.glob(".*")), "no partial file, no journal"


def test_only_what_is_missing_is_fetched_again(fake: Start) -> None:
    server, enough = fake(FILES), threading.Event()

    def fault(asked: Asked) -> int | None:
        if first_byte(asked) < 1 << 19:
            return None
        enough.wait(10)
        return 403

    server.fault = fault
    with pytest.raises(DownloadError):
        hub.pull("user/repo", lambda what, done, total: done >= 1 << 19 and enough.set())
    assert not blob().exists() and hub.names() == []
    gaps = Journal(transfer.journal_path(partial())).missing()
    assert gaps == [(1 << 19, 1 << 20)]
    server.fault, server.asked, server.sent = None, [], 0
    seen: list[int] = []
    assert hub.pull("user/repo", lambda what, done, total: seen.append(done)).read_bytes() == MODEL
    assert merged(server.ranges_asked()) == gaps and server.sent == (1 << 19) + 1
    assert seen[0] >= 1 << 19, "progress begins with what is here"


def test_connections_that_are_cut(fake: Start) -> None:
    server = fake(FILES)
    cut: set[int] = set()

    def fault(asked: Asked) -> str | None:
        start = first_byte(asked)
        if start < 0 or start % (1 << 18) or start in cut:
            return None
        cut.add(start)
        return "cut"

    server.fault = fault
    assert hub.pull("user/repo").read_bytes() == MODEL
    assert len(cut) == 4 and len(server.ranges_asked()) == 8


@pytest.mark.parametrize(("status", "after"), [(429, "0"), (503, None), (500, None)])
def test_statuses_that_pass(fake: Start, status: int, after: str | None) -> None:
    server = fake(FILES, retry_after=after)
    left = [status] * 2
    server.fault = lambda asked: left.pop() if left else None
    assert hub.pull("user/repo").read_bytes() == MODEL
    assert len(server.paths()) > 6


def test_a_status_that_stays(fake: Start) -> None:
    server = fake(FILES)
    server.fault = lambda asked: 503 if asked.host == "cdn" else None
    with pytest.raises(DownloadError, match=r"user/repo could not be fetched: .*answered 503 .*: wait, and try again"):
        hub.pull("user/repo")
    assert server.paths("cdn") == ["/user/repo/m-Q4_K_M.gguf"] * 3


def test_a_signed_address_whose_time_is_over(fake: Start) -> None:
    server = fake(FILES)
    expired: list[Asked] = []

    def fault(asked: Asked) -> int | None:
        if asked.host == "cdn" and first_byte(asked) >= 0 and not expired:
            expired.append(asked)
            return 403
        return None

    server.fault = fault
    assert hub.pull("user/repo").read_bytes() == MODEL
    assert sum("resolve" in path for path in server.paths("hub")) >= 2


@pytest.mark.parametrize("behaviour", [{}, {"length": False}, {"redirects": False}, {"tags": False}])
def test_a_server_without_ranges(fake: Start, behaviour: dict[str, bool]) -> None:
    server = fake(FILES, ranges=False, **behaviour)
    cut = ["cut"]
    server.fault = lambda asked: cut.pop() if cut and asked.range is None and "m-Q4" in asked.path else None
    assert hub.pull("user/repo").read_bytes() == MODEL
    assert not cut


def test_without_a_listing_of_sizes_the_answer_tells(fake: Start, store: Path) -> None:
    server = fake(FILES, tags=False)
    path = hub.pull(f"{server.cdn}/user/repo/m-Q4_K_M.gguf")
    assert path == store / "m-Q4_K_M.gguf" and path.read_bytes() == MODEL


@pytest.mark.parametrize("wrong", [b"X" * len(MODEL), MODEL[:-1], MODEL + b"x"], ids=["other", "short", "long"])
def test_other_bytes_than_the_hub_says(fake: Start, wrong: bytes) -> None:
    fake(FILES, instead={"user/repo/m-Q4_K_M.gguf": wrong})
    with pytest.raises(DownloadError, match=r"m-Q4_K_M.gguf (has the SHA-256|is another file)"):
        hub.pull("user/repo")
    assert not blob().exists() and not partial().exists() and hub.names() == []


def test_a_partial_file_that_is_damaged(fake: Start) -> None:
    """Its bytes are not trusted: if they make another file, all is fetched again."""
    server = fake(FILES)
    blob().parent.mkdir(parents=True)
    partial().write_bytes(bytes(1 << 19))
    journal = Journal(transfer.journal_path(partial()))
    journal.begin(len(MODEL), f"sha256:{blob().name}")
    journal.add(0, 1 << 19)
    assert hub.pull("user/repo").read_bytes() == MODEL
    assert merged(server.ranges_asked()[:1])[0][0] == 0


def test_a_journal_that_promises_too_much(fake: Start) -> None:
    server = fake(FILES)
    blob().parent.mkdir(parents=True)
    partial().write_bytes(MODEL[: 1 << 18])  # the rest was lost with the power
    journal = Journal(transfer.journal_path(partial()))
    journal.begin(len(MODEL), f"sha256:{blob().name}")
    journal.add(0, 1 << 19)
    assert hub.pull("user/repo").read_bytes() == MODEL
    assert merged(server.ranges_asked()) == [(1 << 18, 1 << 20)]


def test_journals(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    assert journal.missing() == []
    journal.begin(100, "a")
    for span in [(50, 60), (0, 10), (10, 20), (15, 30)]:
        journal.add(*span)
    with path.open("ab") as file:
        file.write(b"90 10")  # a kill in the middle of a line
    assert Journal(path).spans == [(0, 30), (50, 60)]
    assert Journal(path).missing() == [(30, 50), (60, 100)]
    again = Journal(path)
    again.begin(100, "a", present=55)
    assert Journal(path).missing() == [(30, 50), (55, 100)]
    for size, tag in ((100, "b"), (101, "a"), (100, "")):
        other = Journal(path)
        other.begin(size, tag, present=size)
        assert other.missing() == [(0, size)]
    for damaged in (b"", b"{}\n", b'{"size": 5, "tag": "a"}\n3 1\n', b"\xff\n"):
        path.write_bytes(damaged)
        assert Journal(path).spans == []


def test_no_room(fake: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = fake(FILES)
    usage = type("Usage", (), {"free": (64 << 20) + len(MODEL) - 1})
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(DownloadError, match=r"it needs 65 MiB .* has 64 MiB free: make room, or set HF_HUB_CACHE"):
        hub.pull("user/repo")
    assert server.sent == 0


def test_a_disk_that_is_full(fake: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(FILES)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "add", full)
    with pytest.raises(DownloadError, match=r"cannot be written \(No space left on device\): make room"):
        hub.pull("user/repo")
    assert not blob().exists()


def test_two_pulls_at_once(fake: Start) -> None:
    server = fake(FILES, rate=4 << 20)
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(hub.pull("user/repo", lambda *_: None))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [path.read_bytes() == MODEL for path in paths] == [True] * 3
    assert server.sent == len(MODEL) + 1, "it comes once"


def test_whoever_looks_on_may_end_it(fake: Start) -> None:
    fake(FILES, rate=2 << 20)

    def progress(what: str, done: int, total: int) -> None:
        if done > 1 << 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.pull("user/repo", progress)
    assert partial().stat().st_size >= 1 << 17 and not blob().exists()
    assert not [thread for thread in threading.enumerate() if thread.name == transfer.THREAD], "nobody goes on"
    assert hub.pull("user/repo", lambda *_: None).read_bytes() == MODEL


def test_an_address_must_stay_secure() -> None:
    web = Web()
    assert web._redirected("https://a.org/x/y", "../z") == "https://a.org/z"
    assert web._redirected("http://a.org/x", "https://b.org/z") == "https://b.org/z"
    for location in ("http://b.org/z", "file:///etc/passwd"):
        with pytest.raises(DownloadError, match=r"https://a.org/x redirects to an address that is not https"):
            web._redirected("https://a.org/x?secret", location)
    web.close()


def test_redirections_without_end(fake: Start) -> None:
    server = fake(FILES)
    server.cdn = server.url + "/user/repo/resolve/main/m-Q4_K_M.gguf?"
    with pytest.raises(DownloadError, match="redirects more than 10 times"):
        hub.pull("user/repo")


def test_hosts_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.hub.web.PAUSE", 0.0)
    with pytest.raises(DownloadError, match=r"127.0.0.1:9 could not be reached \(.*\): check the network") as error:
        hub.pull("http://user:password@127.0.0.1:9/m.gguf?key=secret")
    assert "password" not in str(error.value) and "secret" not in str(error.value)
