"""A small HTTP client that streams answers and notes when each token came. It must not be what limits a server."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from llamina.errors import RequestError

WIDEST = 1 << 20  # bytes of a line or of headers
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class Outcome:
    """What became of a request; times are seconds of `perf_counter`."""

    start: float
    times: list[float] = field(default_factory=list)  # when events with text came
    end: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None

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
        self._free: list[Streams] = []

    async def get(self, path: str) -> Any:
        """The JSON at a path. Raises RequestError if there is none."""
        try:
            streams = await self._connect()
            status, headers = await self._send(streams, "GET", path, b"")
            body = b"".join([part async for part in _body(streams[0], headers)])
            streams[1].close()
            if status != 200:
                raise RequestError(f"GET {path} was answered with {status}: {_text(body)}", "url")
            return msgspec.json.decode(body)
        except (OSError, asyncio.IncompleteReadError, msgspec.DecodeError, ValueError) as error:
            raise RequestError(f"{self._netloc} does not answer: {error}", "url") from error

    async def ask(self, path: str, body: bytes, start: float | None = None) -> Outcome:
        """Stream an answer. Its clock starts now, or at `start`; an error is part of the outcome."""
        outcome = Outcome(time.perf_counter() if start is None else start)
        streams: Streams | None = None
        try:
            streams, status, headers = await self._post(path, body)
            parts = _body(streams[0], headers)
            if status == 200:
                await _listen(parts, outcome)
            else:
                outcome.error = f"{status}: {_text(b''.join([part async for part in parts]))}"
            if headers.get("connection") == "close":
                streams[1].close()
            else:
                self._free.append(streams)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
            if streams is not None:
                streams[1].close()
        except asyncio.CancelledError:
            if streams is not None:
                streams[1].close()
            raise
        outcome.end = time.perf_counter()
        if outcome.error is None and not outcome.times:
            outcome.error = "an answer without text"
        return outcome

    async def _post(self, path: str, body: bytes) -> tuple[Streams, int, dict[str, str]]:
        """Send a request by a connection that is open; one that the server has closed meanwhile is replaced."""
        while self._free:
            streams = self._free.pop()
            try:
                return streams, *await self._send(streams, "POST", path, body)
            except (ConnectionError, asyncio.IncompleteReadError):
                streams[1].close()
        streams = await self._connect()
        return streams, *await self._send(streams, "POST", path, body)

    async def _connect(self) -> Streams:
        return await asyncio.open_connection(self._host, self._port, ssl=self._secure or None, limit=WIDEST)

    async def _send(self, streams: Streams, method: str, path: str, body: bytes) -> tuple[int, dict[str, str]]:
        """Send a request; the status and the headers of its answer."""
        reader, writer = streams
        head = f"{method} {self._path}{path} HTTP/1.1\r\nHost: {self._netloc}\r\n{self._key}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        return int(first.split()[1]), headers

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()
        self._free.clear()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """The parts of a body as they come."""
    if headers.get("transfer-encoding") != "chunked":
        length = headers.get("content-length")
        yield await (reader.readexactly(int(length)) if length is not None else reader.read())
        return
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()


async def _listen(parts: AsyncIterator[bytes], outcome: Outcome) -> None:
    """Note the events of a stream; a part may hold several, or a piece of one."""
    rest = b""
    async for part in parts:
        now = time.perf_counter()
        *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            _take(event, now, outcome)


def _take(event: bytes, now: float, outcome: Outcome) -> None:
    for line in event.split(b"\n"):
        if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
            continue
        found = decode(line[5:])
        if found.error is not None:
            outcome.error = str(found.error)[:200]
        if any(choice.speaks for choice in found.choices):
            outcome.times.append(now)
        if found.usage is not None:
            outcome.prompt_tokens, outcome.completion_tokens = found.usage.prompt_tokens, found.usage.completion_tokens


def _text(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace")
