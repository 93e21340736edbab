"""Databases for tests: SQLite in a folder, and a PostgreSQL server of their own where one is installed."""

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skips import skip


def _program(name: str) -> str:
    """A program of PostgreSQL: distributions keep them out of the search path."""
    places = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)
    found = places[0] if places else shutil.which(name)
    return found or skip("peer", "PostgreSQL is not installed")


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL server that is started for the tests, and ended and deleted after them."""
    initdb, program = _program("initdb"), _program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="llamina-postgres-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = pwd.getpwnam("nobody").pw_uid
        os.chown(folder, user, -1)
    folder.chmod(0o700)
    data = folder / "data"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = [initdb, "-D", data, "-U", "llamina", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(made, user=user, cwd=folder, check=True, capture_output=True)
    options = ["-c", "fsync=off", "-c", f"unix_socket_directories={folder}", "-p", str(port), "-h", "127.0.0.1"]
    server = subprocess.Popen([program, "-D", data, *options], user=user, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        _wait(port, server)
        yield f"postgresql://llamina@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # fast shutdown: it does not wait for connections that are left open
        server.wait(30)
        shutil.rmtree(folder)


def _wait(port: int, server: "subprocess.Popen[bytes]") -> None:
    import psycopg

    for _ in range(300):
        assert server.poll() is None, "PostgreSQL does not start"
        try:
            psycopg.connect(f"postgresql://llamina@127.0.0.1:{port}/postgres").close()
            return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise AssertionError("PostgreSQL does not answer")
