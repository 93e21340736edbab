"""One file from the web into a partial file: ranges by several connections, resumed where an earlier attempt ended."""

import re
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from llamina.errors import DownloadError
from llamina.hub.journal import Journal, Span
from llamina.hub.web import FEW, Answer, Broken, Patience, Refused, Web, shown

CONNECTIONS = 4
NOTED = 1 << 20  # bytes that are noted at a time
SMALLEST, LARGEST = 8 << 20, 64 << 20  # bytes of one request
THREAD = "llamina-transfer"
TICK = 0.1  # seconds between two reports
EXPIRED = (401, 403, 404, 410)  # what a signed address answers when its time is over
ROOM = 64 << 20  # bytes that stay free
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_SHA256 = re.compile(r'(?:W/)?"?([0-9a-f]{64})"?')


@dataclass(frozen=True, slots=True)
class Remote:
    """What a server says of a file."""

    url: str
    place: str  # where `url` redirects to
    size: int | None
    tag: str  # changes when the file does; "" if the server does not tell
    sha256: str | None  # as the Hub tells it
    ranges: bool
    unchanged: bool  # it is the file of the tag that was given


def look(web: Web, url: str, tag: str = "", tries: int = FEW) -> Remote:
    """Ask for the first byte of a file. Raises DownloadError.

    `tag` is that of a file that is here: its server says whether it is still the same.
    """
    condition = {"If-None-Match" if '"' in tag else "If-Modified-Since": tag} if tag else {}
    patience = Patience(tries=tries)
    while True:
        try:
            with web.get(url, {"Range": "bytes=0-0", **condition}) as answer:
                return _remote(url, answer, tag)
        except (Refused, Broken) as error:
            if isinstance(error, Refused) and error.status == 416:
                raise DownloadError(f"{shown(url)} is empty: check the address") from None
            patience.wait(error)


def _remote(url: str, answer: Answer, tag: str) -> Remote:
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadError(f"{shown(url)} is sent compressed though it is not asked for: check the address")
    size = None
    if answer.status == 206:
        _, total = _content_range(answer)
        size = total
    elif answer.status == 200 and answer.headers.get("Content-Length", "").isdecimal():
        size = int(answer.headers["Content-Length"])
    linked = _SHA256.fullmatch(answer.linked.get("x-linked-etag", ""))
    same = answer.status == 304 or bool(tag and tag == answer.tag)
    ranges = answer.status == 206 and size is not None
    return Remote(url, answer.place, size, answer.tag or tag, linked[1] if linked else None, ranges, same)


def _content_range(answer: Answer) -> tuple[int, int | None]:
    """The first byte of an answer, and the size of the whole file."""
    told = answer.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(told)
    if match is None:
        raise Broken(f"{shown(answer.place)} sends the range {told!r}, which is none: try again")
    return int(match[1]), None if match[3] == "*" else int(match[3])


def check_room(folder: Path, wanted: int, variable: str) -> None:
    """Raise DownloadError unless so many bytes, and some more, are free in a folder's file system."""
    free = shutil.disk_usage(folder).free
    if free < wanted + ROOM:
        raise DownloadError(
            f"it needs {wanted + ROOM >> 20} MiB on the way and {folder} has {free >> 20} MiB free: "
            f"make room, or set {variable} to another place"
        )


@dataclass(slots=True)
class _Range:
    """What one request asks for; `at` is the next byte."""

    at: int
    stop: int

    @property
    def done(self) -> bool:
        return self.at >= self.stop


class Transfer:
    """A file on its way into `partial`, with a journal beside it.

    `sha256` is what the file is known by, if anything; else it is the server's tag. `report(done)` gets the bytes that
    have come. It is called in the thread that runs the transfer, and may raise to end it.
    """

    def __init__(
        self, web: Web, remote: Remote, partial: Path, report: Callable[[int], None], sha256: str | None = None
    ) -> None:
        self._web, self._remote, self._partial, self._report = web, remote, partial, report
        self._place: str | None = remote.place
        self._journal = Journal(journal_path(partial))
        present = partial.stat().st_size if partial.exists() else 0
        tag = f"sha256:{sha256}" if sha256 else remote.tag
        self._tagged = not sha256  # servers of one file may have tags of their own for it
        self._journal.begin(remote.size or 0, tag if remote.ranges else "", present)
        self._done = sum(stop - start for start, stop in self._journal.spans)
        self.resumed = self._done > 0  # whether bytes of an earlier attempt are in it
        self._todo = deque(self._requests())
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._ended = False

    @property
    def missing(self) -> int:
        """Bytes that are still to come, as far as is known."""
        return max((self._remote.size or 0) - self._done, 0)

    def _requests(self) -> list[Span]:
        """Ranges, one for each request: large, but enough for all connections."""
        if not self._remote.ranges:
            return [(0, self._remote.size or sys.maxsize)]
        step = min(max(-(-self._journal.size // CONNECTIONS), SMALLEST), LARGEST)
        return [
            (at, min(at + step, stop)) for start, stop in self._journal.missing() for at in range(start, stop, step)
        ]

    def run(self) -> None:
        """Fetch what is missing. Raises DownloadError, and what `report` raises; what has come stays for next time."""
        if not self.resumed:
            self._partial.write_bytes(b"")
        count = min(CONNECTIONS, len(self._todo))
        threads = [threading.Thread(target=self._work, name=THREAD, daemon=True) for _ in range(count)]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                self._report(self._done)
                next((thread for thread in threads if thread.is_alive()), threads[0]).join(TICK)
        finally:
            self._stop.set()
            end = time.monotonic() + 1.0  # one that waits for its server longer sees `stop` before it writes again
            for thread in threads:
                thread.join(max(end - time.monotonic(), 0.0))
            with self._lock:
                self._ended = True
        if self._error is not None:
            raise self._error
        self._report(self._done)

    def _work(self) -> None:
        try:
            with self._partial.open("r+b", buffering=0) as out:
                while not self._stop.is_set() and (span := self._next()) is not None:
                    self._fetch(span, out)
        except BaseException as error:  # for the thread that runs the transfer
            with self._lock:
                self._error = self._error or error
            self._stop.set()

    def _next(self) -> _Range | None:
        with self._lock:
            return _Range(*self._todo.popleft()) if self._todo else None

    def _fetch(self, part: _Range, out: BinaryIO) -> None:
        """Write the bytes of a range, in as many requests as it takes."""
        patience = Patience(self._stop)
        while not part.done and not self._stop.is_set():
            begun = part.at
            try:
                with self._web.get(self._place or self._remote.url, self._asked(part)) as answer:
                    self._place = answer.place
                    self._check(answer, part.at)
                    self._read(answer, part, out)
            except Refused as error:
                if self._place is None or error.status not in EXPIRED:
                    patience.wait(error)
                self._place = None  # it is asked for again
            except Broken as error:
                if part.at > begun and self._remote.ranges:
                    patience.renew()
                patience.wait(error)
                if not self._remote.ranges:  # the next answer begins at the beginning
                    self._advance(-part.at)
                    part.at = out.truncate(0)

    def _read(self, answer: Answer, part: _Range, out: BinaryIO) -> None:
        """Write what comes. Raises Broken if it ends early."""
        noted = part.at
        try:
            for piece in answer.response.iter_raw():
                if self._stop.is_set():
                    return
                part.at += self._write(out, part.at, piece[: part.stop - part.at])
                if part.at - noted >= NOTED:
                    self._note(noted, part.at)
                    noted = part.at
                if part.done:
                    return
        finally:
            self._note(noted, part.at)
        if self._remote.size is not None:
            raise Broken(f"{shown(self._remote.url)} ended {part.stop - part.at} bytes early: try again")
        part.stop = part.at

    def _asked(self, part: _Range) -> dict[str, str]:
        return {"Range": f"bytes={part.at}-{part.stop - 1}"} if self._remote.ranges else {}

    def _check(self, answer: Answer, at: int) -> None:
        """Raise DownloadError unless the answer is a part of the same file, from byte `at` on."""
        if not self._remote.ranges:
            return
        if answer.status != 206:
            raise Broken(f"{shown(answer.place)} answers with {answer.status} instead of a range: try again")
        start, total = _content_range(answer)
        if start != at:
            raise Broken(f"{shown(answer.place)} sends bytes from {start} on instead of {at}: try again")
        if total not in (None, self._remote.size) or (self._tagged and answer.tag != self._remote.tag):
            raise DownloadError(f"{shown(self._remote.url)} changed while it was fetched: try again")

    def _write(self, out: BinaryIO, at: int, piece: bytes) -> int:
        with self._disk():
            out.seek(at)
            view = memoryview(piece)
            while view:
                view = view[out.write(view) :]
        self._advance(len(piece))
        return len(piece)

    def _note(self, start: int, stop: int) -> None:
        if self._remote.ranges and stop > start:
            with self._lock, self._disk():
                if not self._ended:  # then the journal may be that of another attempt
                    self._journal.add(start, stop)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DownloadError(f"{self._partial} cannot be written ({error.strerror}): make room there") from error

    def _advance(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes


def journal_path(partial: Path) -> Path:
    """Where it is noted which bytes of a partial file have come."""
    return partial.with_suffix(".journal")
