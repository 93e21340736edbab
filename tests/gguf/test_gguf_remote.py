"""llamina.gguf.remote against a server on this machine."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llamina.errors import DownloadError, ModelFileError, RequestError
from llamina.gguf import GGUF, open_url, tensor_type, write

MIB = 1 << 20


class Files(ThreadingHTTPServer):
    """Serves `files` by ranges, each in the manner that the first part of the path names."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.sent: list[tuple[int, int]] = []

    def url(self, manner: str, name: str = "a.gguf") -> str:
        return f"http://127.0.0.1:{self.server_port}/{manner}/{name}"


class Answer(BaseHTTPRequestHandler):
    server: Files

    def do_GET(self) -> None:
        _, manner, name = self.path.split("/")
        data = self.server.files.get(name)
        if data is None or manner == "gone":
            self.send_error(404)
        elif manner == "moved":
            self.send_response(302)
            self.send_header("Location", f"/ranges/{name}")
            self.end_headers()
        elif manner == "whole":
            self.reply(200, data, {})
        else:
            self.part(manner, data)

    def part(self, manner: str, data: bytes) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert match
        start, stop = int(match[1]), min(int(match[2]) + 1, len(data))
        self.server.sent.append((start, stop))
        total = len(data) + (start if manner == "grows" else 0)
        shown = {"lies": "bytes 7-9/10", "mute": "", "endless": f"bytes {start}-{stop - 1}/*"}
        headers = {"Content-Range": shown.get(manner, f"bytes {start}-{stop - 1}/{total}")}
        if manner == "edited":
            headers["ETag"] = f'"{start}"'
        self.reply(206, data[start:stop], headers, cut=manner == "breaks")

    def reply(self, status: int, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body[: len(body) // 2] if cut else body)
        except OSError:
            self.close_connection = True  # the client has seen enough

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Files() as files:
        thread = threading.Thread(target=files.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield files
        files.shutdown()
        thread.join()


@pytest.fixture
def large(tmp_path: Path, server: Files) -> GGUF:
    """A header of more than 2 MiB and data of 4 MiB, served as a.gguf."""
    f32 = tensor_type("F32")
    write(tmp_path / "a.gguf", {"tokens": ["token"] * 200_000}, [("x", (MIB,), f32, bytes(4 * MIB))])
    server.files["a.gguf"] = (tmp_path / "a.gguf").read_bytes()
    return GGUF.open(tmp_path / "a.gguf")


@pytest.mark.parametrize("manner", ["ranges", "moved"])
def test_a_header_is_read_by_growing_ranges(manner: str, server: Files, large: GGUF) -> None:
    file = open_url(server.url(manner))
    assert file.metadata == large.metadata and file.metadata_types == large.metadata_types
    assert file.tensors == large.tensors and file.source == server.url(manner)
    assert [start for start, _ in server.sent] == [0, *(stop for _, stop in server.sent[:-1])]
    assert server.sent[0] == (0, MIB) and server.sent[-1][1] <= 4 * MIB


def test_tensors_have_no_data(server: Files, large: GGUF) -> None:
    tensor = open_url(server.url("ranges")).tensors["x"]
    assert (tensor.shape, tensor.nbytes) == ((MIB,), 4 * MIB)
    with pytest.raises(RequestError, match="x was read from a URL"):
        _ = tensor.data


def test_a_small_file_takes_one_request(server: Files, small: Path, contents: Any) -> None:
    server.files["a.gguf"] = small.read_bytes()
    file = open_url(server.url("ranges"))
    assert list(file.metadata) == list(contents.metadata) and file.metadata_types == contents.kinds
    assert len(server.sent) == 1


def test_a_header_may_come_in_the_smallest_pieces(
    server: Files, small: Path, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamina.gguf.remote._FIRST_BYTES", 1)
    server.files["a.gguf"] = small.read_bytes()
    assert open_url(server.url("ranges")).metadata_types == contents.kinds
    assert len(server.sent) > 5


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("gone", "the server answered 404"),
        ("whole", "answered 200, it ignores Range"),
        ("lies", "the range 'bytes 7-9/10' instead of 0-1048575"),
        ("mute", "the range ''"),
        ("endless", "the range 'bytes "),
        ("breaks", "failed|broke"),
        ("grows", "changed while it was read"),
        ("edited", "changed while it was read"),
    ],
)
def test_servers_that_do_not_play_along(manner: str, words: str, server: Files, large: GGUF) -> None:
    with pytest.raises(DownloadError, match=words):
        open_url(server.url(manner))


def test_a_server_that_is_not_there(server: Files) -> None:
    address = server.url("ranges").replace(str(server.server_port), "9")
    with pytest.raises(DownloadError, match="the request failed"):
        open_url(address, timeout=5)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "a.gguf", "ftp://host/a.gguf"])
def test_only_web_addresses_are_taken(url: str) -> None:
    with pytest.raises(RequestError, match=r"GGUF\.open"):
        open_url(url)


def test_an_address_that_is_none() -> None:
    with pytest.raises(DownloadError):
        open_url("http://")


def test_damaged_and_truncated_files(server: Files, small: Path) -> None:
    server.files["a.gguf"] = small.read_bytes()[:200]
    with pytest.raises(ModelFileError, match=r"a\.gguf: byte \d+: .* are left"):
        open_url(server.url("ranges"))
    server.files["a.gguf"] = b"<html>" * 100
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        open_url(server.url("ranges"))


def test_a_header_larger_than_the_limit(server: Files, monkeypatch: pytest.MonkeyPatch, large: GGUF) -> None:
    monkeypatch.setattr("llamina.gguf.remote._MAX_BYTES", MIB + 10)
    with pytest.raises(DownloadError, match=f"at most {MIB + 10} are fetched"):
        open_url(server.url("ranges"))
