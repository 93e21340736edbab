"""A model in a process of its own. One that dies is started again; what it had under way ends with an error."""

import asyncio
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
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
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}  # glibc's heaps of each thread fill with holes under clients that come and go

Progress = Callable[[Loading], None]


class WorkerModel(Model):
    """`start` loads the model in a new process; `close` ends it and returns all of its memory."""

    def __init__(self, path: str, options: dict[str, Any], adapters: dict[str, str] | None = None) -> None:
        self._setup = path, options
        self.adapter_files = dict(adapters or {})  # names and files of LoRAs, also of a worker that is started again
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._writer = ThreadPoolExecutor(1, "llamina-writer")  # frames leave in order, and nobody waits for them
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
            await asyncio.to_thread(self._spawn)
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
        if self._connection is None:
            raise ModelError(ErrorInfo(LOST, "the model's process is not running"))
        self._writer.submit(self._write, self._connection, packed(frame))

    def _write(self, connection: "Connection[Any, Any]", data: bytes) -> None:
        with suppress(OSError):  # the reader notices, too, and tells everyone
            connection.send_bytes(data)

    # ---- the process -------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        path, options = self._setup
        key = secrets.token_bytes(32)
        with tempfile.TemporaryDirectory(prefix="llamina-") as folder:
            address = _address(folder)
            with Listener(address, authkey=key) as listener:
                process = subprocess.Popen(
                    [sys.executable, "-m", "llamina.server.model.worker"],
                    stdin=subprocess.PIPE,
                    close_fds=True,
                    env=ONE_HEAP | os.environ,
                )
                assert process.stdin is not None
                setup = Setup(str(listener.address), key, path, options, self.adapter_files)
                data = msgspec.msgpack.encode(setup)
                process.stdin.write(len(data).to_bytes(4, "big") + data)
                process.stdin.flush()  # it stays open: the worker ends when it closes, however this process ends
                self._process = process
                connection = _accept(listener, process)
        self._connection = connection
        threading.Thread(target=self._read, args=(connection, process), name="llamina-reader", daemon=True).start()

    def _read(self, connection: "Connection[Any, Any]", process: "subprocess.Popen[bytes]") -> None:
        """In a thread: pass every frame on to the event loop until the connection ends."""
        try:
            while True:
                self._post(self._take, decode_from_model(connection.recv_bytes()))
        except (EOFError, OSError):
            pass
        code = process.wait()
        self._post(self._ended, process, code)

    def _post(self, function: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server ends
            self._loop.call_soon_threadsafe(function, *args)

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
        """On the event loop: the process is gone."""
        if process is not self._process:
            return
        self._connection = None
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
            await asyncio.to_thread(self._spawn)
        except Exception as error:
            if not ready.done():
                ready.set_exception(
                    ModelError(ErrorInfo(LOST, f"the model's process cannot be started again: {error}"))
                )
                ready.exception()  # seen by those who wait; nobody else need be told

    async def close(self) -> None:
        """End the process; what it has under way ends with an error."""
        self._closing = True
        connection, process = self._connection, self._process
        self._connection = None
        if connection is not None:
            await asyncio.to_thread(_hang_up, connection)
        if process is not None:
            await asyncio.to_thread(_end, process)
        self._writer.shutdown(wait=False)
        self.lose("the model was unloaded")


def _address(folder: str) -> str | None:
    """A socket in a folder of our own; on Windows, a pipe that the system names."""
    return None if sys.platform == "win32" else str(Path(folder, "worker"))


def _accept(listener: Listener, process: "subprocess.Popen[bytes]") -> Any:
    """The worker's connection; whoever does not know the key is refused. Raises ModelError if the worker ends first."""
    connected = threading.Event()
    threading.Thread(target=_watch, args=(listener.address, process, connected), daemon=True).start()
    try:
        while process.poll() is None:
            with suppress(AuthenticationError, EOFError, OSError):
                return listener.accept()
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


def _hang_up(connection: "Connection[Any, Any]") -> None:
    """Close a connection that another thread waits at. The other end would not notice `close` alone meanwhile."""
    if sys.platform != "win32":
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
    connection.close()


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
