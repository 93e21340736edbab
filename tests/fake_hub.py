"""A Hugging Face Hub of our own: repositories, a second host that has their contents, a log, and faults on demand."""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
TOKEN = "hf_a-secret-token"


@dataclass
class Asked:
    """A request that came."""

    host: str  # hub or cdn
    path: str
    range: str | None
    token: str | None


Fault = Callable[[Asked], "int | str | None"]
"""For a request: a status to answer with, "cut" (the connection in the middle), or None for a proper answer."""


@dataclass
class FakeHub:
    """What it has and how it behaves; tests change it while it runs."""

    repos: dict[str, dict[str, bytes]]
    private: bool = False
    gated: bool = False
    ranges: bool = True
    redirects: bool = True  # to the host of contents
    tags: bool = True
    length: bool = True  # whether the size is told where there are no ranges
    rate: float | None = None  # bytes a second of one connection
    commit: str = COMMIT
    fault: Fault | None = None
    retry_after: str | None = None
    instead: dict[str, bytes] = field(default_factory=dict)  # contents that are not what is said of them
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    cdn: str = ""
    sent: int = 0  # bytes of contents
    lock: threading.Lock = field(default_factory=threading.Lock)

    def paths(self, host: str | None = None) -> list[str]:
        return [ask.path for ask in self.asked if host in (None, ask.host)]

    def ranges_asked(self) -> list[tuple[int, int]]:
        """The ranges that were asked for but those of one byte, in order."""
        found = [re.fullmatch(r"bytes=(\d+)-(\d+)", ask.range or "") for ask in self.asked]
        return sorted((int(m[1]), int(m[2]) + 1) for m in found if m and m[0] != "bytes=0-0")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub
    host: str

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        asked = Asked(self.host, path, self.headers.get("Range"), self.headers.get("Authorization"))
        with hub.lock:
            hub.asked.append(asked)
        wrong = hub.fault(asked) if hub.fault else None
        if isinstance(wrong, int):
            wait = {"Retry-After": hub.retry_after} if hub.retry_after else {}
            return self._say(wrong, {"error": "no"}, wait)
        if self.host == "cdn":
            return self._content(path.lstrip("/"), wrong == "cut")
        self._hub(path, wrong == "cut")

    def _hub(self, path: str, cut: bool) -> None:
        hub = self.hub
        for repo, files in hub.repos.items():
            listing = re.fullmatch(rf"/api/models/{repo}/revision/(.+)", path, re.IGNORECASE)
            file = re.fullmatch(rf"/{repo}/resolve/([^/]+)/(.+)", path)
            if not listing and not file:
                continue
            if hub.private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self._say(401, {"error": "no"}, {"X-Error-Code": "RepoNotFound"})
            if hub.gated:
                return self._say(403, {"error": "no"}, {"X-Error-Code": "GatedRepo"})
            if (listing or file)[1] not in ("main", "v1", hub.commit):  # type: ignore[index]
                return self._say(404, {"error": "no"}, {"X-Error-Code": "RevisionNotFound"})
            if listing:
                siblings = [_sibling(name, data) for name, data in files.items()]
                return self._say(200, {"id": repo, "sha": hub.commit, "siblings": siblings})
            if file and file[2] not in files:
                return self._say(404, {"error": "no"}, {"X-Error-Code": "EntryNotFound"})
            return self._resolve(f"{repo}/{file[2]}", cut)  # type: ignore[index]
        self._say(404, {"error": "no"}, {"X-Error-Code": "RepoNotFound"})

    def _resolve(self, name: str, cut: bool) -> None:
        data = self._data(name)
        about = {"X-Repo-Commit": self.hub.commit, "X-Linked-Size": str(len(data))}
        about["X-Linked-ETag"] = f'"{digest_of(data)}"'
        if self.hub.redirects:
            return self._say(302, None, {**about, "Location": f"{self.hub.cdn}/{name}?Signature=secret-signature"})
        self._content(name, cut, about)

    def _data(self, name: str) -> bytes:
        user, repo, file = name.split("/", 2)
        return self.hub.repos[f"{user}/{repo}"][file]

    def _content(self, name: str, cut: bool, about: Mapping[str, str] | None = None) -> None:
        try:
            data = self._data(name)
        except (KeyError, ValueError):
            return self._say(404, {"error": "no"})
        data, headers = self.hub.instead.get(name, data), dict(about or {})
        if self.hub.tags:
            headers["ETag"] = f'"{digest_of(data, "md5")}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                return self._say(304, None, headers)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not match or not self.hub.ranges:
            return self._send(200, data, headers, cut)
        first, last = int(match[1]), min(int(match[2]) + 1, len(data))
        if first >= len(data):
            return self._say(416, {"error": "no"}, {"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {first}-{last - 1}/{len(data)}"
        self._send(206, data[first:last], headers, cut)

    def _send(self, status: int, data: bytes, headers: Mapping[str, str], cut: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.hub.length or status == 206:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        half = len(data) // 2 if cut else len(data)
        step = len(data) if self.hub.rate is None else 1 << 16
        try:
            for at in range(0, half, max(step, 1)):
                piece = data[at : min(at + step, half)]
                self.wfile.write(piece)
                with self.hub.lock:
                    self.hub.sent += len(piece)
                if self.hub.rate is not None:
                    time.sleep(len(piece) / self.hub.rate)
        except OSError:  # whoever asked is gone
            self.close_connection = True
        self.close_connection |= cut

    def _say(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed are part of the tests."""


@lru_cache(64)
def digest_of(data: bytes, algorithm: str = "sha256") -> str:
    return hashlib.new(algorithm, data).hexdigest()


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    digest = digest_of(data)
    return {"rfilename": name, "size": len(data), "blobId": digest[:40], "lfs": {"sha256": digest, "size": len(data)}}


@contextmanager
def serving(files: Mapping[str, bytes], repo: str = "user/repo", **behaviour: Any) -> Iterator[FakeHub]:
    """A hub with one repository, whose contents another host has."""
    hub = FakeHub({repo: dict(files)}, **behaviour)
    servers = []
    for host in ("hub", "cdn"):
        handler = type("Handler", (_Handler,), {"hub": hub, "host": host})
        server = _Server(("127.0.0.1", 0), handler)
        setattr(hub, {"hub": "url", "cdn": "cdn"}[host], f"http://127.0.0.1:{server.server_port}")
        servers.append((server, threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)))
    for _, thread in servers:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in servers:
            server.shutdown()
            server.server_close()
            thread.join()
