"""A small HTTP client that streams answers and notes when each token came. It must not be what limits a server.

While an answer comes, its bytes are kept with their times and nothing else is done; it is read when it is whole.
"""

import asyncio
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from llamina.errors import RequestError

LAST = b"0\r\n\r\n"  # the end of a body in chunks


@dataclass(slots=True)
class Outcome:
    """What became of a request; times are seconds of `perf_counter`."""

    start: float
    times: list[float] = field(default_factory=list)  # when events with text came
    end: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None
    answer: "Answer | None" = None  # until it is read

    def read(self) -> "Outcome":
        """Find the tokens in the answer. What it takes is not part of what is measured."""
        answer, self.answer = self.answer, None
        if answer is not None and answer.status != 200:
            self.error = f"{answer.status}: {_text(answer.body)}"
        elif answer is not None:
            try:
                for event, at in answer.events():
                    self._take(event, at)
            except ValueError as error:
                self.error = f"{type(error).__name__}: {error}"
            if self.error is None and not self.times:
                self.error = "an answer without text"
        return self

    def _take(self, event: bytes, at: float) -> None:
        for line in event.split(b"\n"):
            if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
                continue
            found = decode(line[5:])
            if found.error is not None:
                self.error = str(found.error)[:200]
            if any(choice.speaks for choice in found.choices):
                self.times.append(at)
            if found.usage is not None:
                self.prompt_tokens, self.completion_tokens = found.usage.prompt_tokens, found.usage.completion_tokens

    @property
    def first_token(self) -> float:
        return self.times[0] - self.start

    @property
    def gaps(self) -> list[float]:
        """Seconds between tokens."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None


class Choice(msgspec.Struct):
    delta: Delta | None = None
    text: str | None = None

    @property
    def speaks(self) -> bool:
        delta = self.delta
        return bool(self.text or (delta and (delta.content or delta.reasoning_content or delta.tool_calls)))


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Event(msgspec.Struct):
    """A chunk of a chat or of a completion, as far as it is measured."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


decode = msgspec.json.Decoder(Event).decode


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.closed = True
        self._parts: list[tuple[float, bytes]] = []
        self._end: asyncio.Future[None] | None = None
        self._left = -1  # bytes that are missing; -1: not known

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.closed = cast(asyncio.Transport, transport), False  # uvloop's is a class of its own

    async def ask(self, request: bytes) -> "Answer":
        """Send a request and wait for all of the answer. Raises ConnectionError if the connection ends before."""
        self._parts, self._left = [], -1
        self._end = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._end
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._end = None
        return Answer(self._parts)

    def data_received(self, data: bytes) -> None:
        self._parts.append((time.perf_counter(), data))
        if len(self._parts) == 1 or self._left > 0:
            self._left = _missing(self._parts)
        if self._left == 0 or (self._left < 0 and self._ends(data)):
            self._finish()

    def _ends(self, data: bytes) -> bool:
        """Whether the last chunk has come; it may be in two parts."""
        tail = data if len(data) >= len(LAST) else b"".join(part for _, part in self._parts[-len(LAST) :])
        return tail.endswith(LAST) and Answer(self._parts).whole

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._parts and Answer(self._parts).until_closed:
            self._finish()
        elif self._end is not None and not self._end.done():
            self._end.set_exception(error if isinstance(error, OSError) else ConnectionError("the server hung up"))

    def _finish(self) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def close(self) -> None:
        self.closed = True
        self._transport.close()


def _missing(parts: list[tuple[float, bytes]]) -> int:
    """Bytes that a body whose length is told still lacks; -1 for another, or before the end of its headers."""
    answer = Answer(parts)
    length = answer.headers.get("content-length")
    return max(0, int(length) - len(answer.rest)) if length is not None else -1


class Answer:
    """The bytes of an answer with their times. Raises ValueError for what is not HTTP."""

    def __init__(self, parts: list[tuple[float, bytes]]) -> None:
        self._times = [at for at, _ in parts]
        self._ends = list(accumulate(len(part) for _, part in parts))
        self._data = b"".join(part for _, part in parts)
        head, _, self.rest = self._data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        self.status = int((first.split() or ["", "0"])[1]) if first.count(" ") else 0

    @property
    def _chunked(self) -> bool:
        return self.headers.get("transfer-encoding") == "chunked"

    @property
    def until_closed(self) -> bool:
        """Whether the body ends with the connection."""
        return bool(self.status) and not self._chunked and "content-length" not in self.headers

    @property
    def whole(self) -> bool:
        """Whether a body in chunks has its last one."""
        return self._chunked and bool(chunks := self._chunks()) and chunks[-1][0] == b""

    def _chunks(self) -> list[tuple[bytes, int]]:
        """Chunks that are whole, with the places where they end."""
        found: list[tuple[bytes, int]] = []
        at = len(self._data) - len(self.rest)
        while (line := self._data.find(b"\r\n", at)) >= 0:
            size = int(self._data[at:line].split(b";")[0], 16)
            start, at = line + 2, line + 2 + size + 2
            if at > len(self._data):
                break
            found.append((self._data[start : start + size], at))
            if not size:
                break
        return found

    @property
    def body(self) -> bytes:
        return b"".join(part for part, _ in self._chunks()) if self._chunked else self.rest

    def events(self) -> list[tuple[bytes, float]]:
        """Server-sent events, and when each was whole."""
        parts = self._chunks() if self._chunked else [(self.rest, len(self._data))]
        found: list[tuple[bytes, float]] = []
        rest = b""
        for part, end in parts:
            *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
            found += [(event, self._times[bisect_left(self._ends, end)]) for event in events]
        return found


class Client:
    """Connections to one server, kept open between requests."""

    def __init__(self, url: str, key: str = "") -> None:
        """Raises RequestError for a URL that is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RequestError(f"the URL is {url!r}: give one such as http://127.0.0.1:8080/v1", "url")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._secure else 80)
        self._path, self._netloc = parts.path.rstrip("/"), parts.netloc
        self._key = f"Authorization: Bearer {key}\r\n" if key else ""
        self._free: list[Connection] = []

    async def get(self, path: str) -> Any:
        """The JSON at a path. Raises RequestError if there is none."""
        try:
            answer = await self._ask("GET", path, b"")
            if answer.status != 200:
                raise RequestError(f"GET {path} was answered with {answer.status}: {_text(answer.body)}", "url")
            return msgspec.json.decode(answer.body)
        except (OSError, msgspec.DecodeError, ValueError) as error:
            raise RequestError(f"{self._netloc} does not answer: {error}", "url") from error

    async def ask(self, path: str, body: bytes, start: float | None = None) -> Outcome:
        """Stream an answer. Its clock starts now, or at `start`; an error is part of the outcome."""
        outcome = Outcome(time.perf_counter() if start is None else start)
        try:
            outcome.answer = await self._ask("POST", path, body)
        except (OSError, ValueError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        outcome.end = time.perf_counter()
        return outcome

    async def _ask(self, method: str, path: str, body: bytes) -> Answer:
        """Send a request by a connection that is open; one that the server has closed meanwhile is replaced."""
        head = f"{method} {self._path}{path} HTTP/1.1\r\nHost: {self._netloc}\r\n{self._key}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                try:
                    return await self._by(connection, request)
                except ConnectionError:
                    continue
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._secure or None)
        return await self._by(connection, request)

    async def _by(self, connection: Connection, request: bytes) -> Answer:
        answer = await connection.ask(request)
        if answer.headers.get("connection") == "close":
            connection.close()
        else:
            self._free.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()


def _text(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace")
