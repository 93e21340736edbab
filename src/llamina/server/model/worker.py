"""A model's process: `python -m llamina.server.model.worker`, told where to connect and what to load on its stdin."""

import os
import signal
import sys
import threading
from multiprocessing.connection import Client, Connection
from typing import Any

import msgspec

from llamina.backends.host import give_way, trim_memory
from llamina.engine import load
from llamina.errors import LlaminaError
from llamina.server.model.describe import describe
from llamina.server.model.frames import Broken, ErrorInfo, FromModel, Loading, Ready, Setup, decode_to_model, encode
from llamina.server.model.service import Service

QUIET = 0.5  # seconds without a frame after which freed memory is given back


def main() -> None:
    """Load the model, answer frames until the connection ends."""
    give_way(False)  # as the server does, which started it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's: it ends its workers in order
    size = int.from_bytes(sys.stdin.buffer.read(4), "big")
    setup = msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=Setup)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    connection = Client(setup.address, authkey=setup.key)
    lock = threading.Lock()

    def emit(frame: FromModel) -> None:
        try:
            with lock:
                connection.send_bytes(encode(frame))
        except OSError:
            os._exit(0)  # the server is gone, and nobody else waits for us

    try:
        engine = load(setup.model, progress=lambda name, done, total: emit(Loading(name, done, total)), **setup.options)
        for name, path in setup.adapters.items():
            engine.load_adapter(path, name)
        service = Service(engine, emit)
        emit(Ready(describe(engine)))
    except LlaminaError as error:
        emit(Broken(ErrorInfo.of(error)))
        return
    except Exception as error:  # nothing of a client's is in it yet
        emit(Broken(ErrorInfo("Internal", f"{type(error).__name__}: {error}")))
        return
    _serve(connection, service)
    service.close()


def _end_with_the_server() -> None:
    """In a thread: end when stdin does. The server holds its other end for as long as it lives."""
    os.read(0, 1)
    os._exit(0)


def _serve(connection: "Connection[Any, Any]", service: Service) -> None:
    try:
        while True:
            if not connection.poll(QUIET):
                trim_memory()
            service.handle(decode_to_model(connection.recv_bytes()))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    main()
