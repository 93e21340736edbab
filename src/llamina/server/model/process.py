"""A model in a process of its own. One that dies is started again; what it had under way ends with an error."""

import asyncio
import logging
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import msgspec

from llamina.server.model.client import LOST, Model, ModelError, packed
from llamina.server.model.frames import (
    Broken,
    ErrorInfo,
    FromModel,
    Loading,
    ModelInfo,
    Ready,
    Setup,
    ToModel,
    decode_from_model,
)

log = logging.getLogger("llamina.server")
RESTARTS = 3  # in a row without a request answered in between; then the model is given up
GRACE = 5.0  # seconds for a worker to end by itself
CONNECT = 60.0  # seconds for a worker to connect
LENGTH = struct.Struct("!i")  # of a frame; those of 2 GiB and more are not sent
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}  # glibc's heaps of each thread fill with holes under clients that come and go

Progress = Callable[[Loading], None]


class WorkerModel(Model):
    """`start` loads the model in a new process; `close` ends it and returns all of its memory."""

    def __init__(self, path: str, options: dict[str, Any], adapters: dict[str, str] | None = None) -> None:
        self._setup = path, options
        self.adapter_files = dict(adapters or {})  # names and files of LoRAs, also of a worker that is started again
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[ModelInfo] | None = None
        self._failures = 0
        self._closing = False
        self.progress: Progress | None = None
        super().__init__(_unknown(path), self)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self, progress: Progress | None = None) -> ModelInfo:
        """Load the model. Raises ModelError if it cannot be loaded."""
        self.progress = progress
        self._ready = self._loop.create_future()
        try:
            await self._begin()
            self.info = await self._ready
        except BaseException:
            await self.close()
            raise
        return self.info

    async def wait_ready(self) -> None:
        """Return when the model can be asked; raises ModelError if it could not be started again."""
        if self._ready is not None:
            await asyncio.shield(self._ready)

    def send(self, frame: ToModel) -> None:
        if self._transport is None:
            raise ModelError(ErrorInfo(LOST, "the model's process is not running"))
        data = packed(frame)
        self._transport.write(LENGTH.pack(len(data)) + data)

    # ---- the process -------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start the process, and take what it sends. Raises ModelError if it ends before it connects."""
        end, process = await asyncio.to_thread(self._spawn)
        frames = _Frames(self._take, lambda: self._lost(process))
        self._transport, _ = await self._loop.create_connection(lambda: frames, sock=end)

    def _spawn(self) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
        path, options = self._setup
        key = secrets.token_bytes(32)
        with (
            tempfile.TemporaryDirectory(prefix="llamina-") as folder,
            Listener(_address(folder), authkey=key) as listener,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", "llamina.server.model.worker"],
                stdin=subprocess.PIPE,
                close_fds=True,
                env=ONE_HEAP | os.environ,
            )
            assert process.stdin is not None
            data = msgspec.msgpack.encode(Setup(listener.address, key, path, options, self.adapter_files))
            process.stdin.write(len(data).to_bytes(4, "big") + data)
            process.stdin.flush()  # it stays open: the worker ends when it closes, however this process ends
            self._process = process
            return _accept(listener, process), process

    def _lost(self, process: "subprocess.Popen[bytes]") -> None:
        """The connection has ended, and the process with it, or soon."""
        self._reaping = asyncio.ensure_future(self._reap(process))

    async def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        self._ended(process, await asyncio.to_thread(process.wait))

    def _take(self, frame: FromModel) -> None:
        match frame:
            case Ready(info) if self._ready is not None and not self._ready.done():
                self._ready.set_result(info)
            case Broken(error) if self._ready is not None and not self._ready.done():
                self._closing = True  # it would fail again
                self._ready.set_exception(ModelError(error))
                self._ready.exception()  # seen by those who wait; nobody else need be told
            case Loading() if self.progress is not None:
                self.progress(frame)
            case _:
                self._failures = 0
                self.receive(frame)

    def _ended(self, process: "subprocess.Popen[bytes]", code: int) -> None:
        """The process is gone."""
        if process is not self._process:
            return
        self._transport = None
        message = f"the model's process {_end_of(code)}"
        if not self._closing:
            log.error("%s: %s", self._setup[0], message)
        self.lose(message)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ModelError(ErrorInfo(LOST, message)))
        elif not self._closing:
            self._failures += 1
            self._ready = self._loop.create_future()
            if self._failures > RESTARTS:
                self._ready.set_exception(ModelError(ErrorInfo(LOST, f"{message}, again and again: it is given up")))
                self._ready.exception()  # seen by those who wait; nobody else need be told
            else:
                self._restarting = asyncio.ensure_future(self._restart(self._ready))

    async def _restart(self, ready: "asyncio.Future[ModelInfo]") -> None:
        try:
            await self._begin()
        except Exception as error:
            if not ready.done():
                ready.set_exception(
                    ModelError(ErrorInfo(LOST, f"the model's process cannot be started again: {error}"))
                )
                ready.exception()  # seen by those who wait; nobody else need be told

    async def close(self) -> None:
        """End the process; what it has under way ends with an error."""
        self._closing = True
        transport, process = self._transport, self._process
        self._transport = None
        if transport is not None:
            transport.abort()
        if process is not None:
            await asyncio.to_thread(_end, process)
        self.lose("the model was unloaded")


class _Frames(asyncio.Protocol):
    """What comes over a worker's connection: frames, as `multiprocessing` sends them, after their lengths."""

    def __init__(self, take: Callable[[FromModel], None], lost: Callable[[], None]) -> None:
        self._take, self._on_end = take, lost
        self._data = bytearray()

    def data_received(self, data: bytes) -> None:
        self._data += data
        at = 0
        while len(self._data) - at >= LENGTH.size:
            start = at + LENGTH.size
            end = start + LENGTH.unpack_from(self._data, at)[0]
            if end > len(self._data):
                break
            self._take(decode_from_model(memoryview(self._data)[start:end]))
            at = end
        del self._data[:at]

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()


def _address(folder: str) -> Any:
    """A socket in a folder of our own; on Windows, which has no such sockets, a port of this machine's own address."""
    return ("127.0.0.1", 0) if sys.platform == "win32" else str(Path(folder, "worker"))


def _accept(listener: Listener, process: "subprocess.Popen[bytes]") -> socket.socket:
    """The worker's connection; whoever does not know the key is refused. Raises ModelError if the worker ends first."""
    connected = threading.Event()
    threading.Thread(target=_watch, args=(listener.address, process, connected), daemon=True).start()
    family = socket.AF_INET if isinstance(listener.address, tuple) else socket.AF_UNIX
    try:
        while process.poll() is None:
            with suppress(AuthenticationError, EOFError, OSError), listener.accept() as connection:
                return socket.fromfd(connection.fileno(), family, socket.SOCK_STREAM)
    finally:
        connected.set()
    raise ModelError(ErrorInfo(LOST, f"the model's process {_end_of(process.returncode)} before it connected"))


def _watch(address: Any, process: "subprocess.Popen[bytes]", connected: threading.Event) -> None:
    """In a thread: wake who waits for a worker that has ended; one that does not even connect is ended."""
    late = time.monotonic() + CONNECT
    while not connected.wait(0.05):
        if process.poll() is not None or time.monotonic() > late:
            process.kill()
            process.wait()
            with suppress(OSError):
                Client(address).close()  # nothing else ends `accept`, on all systems


def _end_of(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _unknown(path: str) -> ModelInfo:
    """Until the model is loaded."""
    return ModelInfo(path, "", "", 0, 0, 0, 0, True, False, "", "", "")
