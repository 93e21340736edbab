"""Ctrl-C while something is measured: quiet, at once, and no process is left."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from llamina.bench.child import Child
from llamina.bench.contestant import Setup
from llamina.bench.task import Task

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends a POSIX signal to a process group")
LONG = ("-n", "100000", "-r", "1", "-t", "1")  # more than anybody waits for
PATIENCE = 60  # seconds to come as far as is waited for


def group(pid: int) -> list[int]:
    """The processes of a process group that run still."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:  # gone in the meantime
            continue
        if int(of) == pid and state != "Z":
            found.append(int(folder.name))
    return found


def leftovers(pid: int) -> list[int]:
    """The processes that are still there after a moment: Python's own tracker of resources needs one to end."""
    deadline = time.monotonic() + 2
    while (found := group(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="hardware: looks for processes in /proc")
@pytest.mark.parametrize(
    ("verb", "later"),
    [(["bench"], 0), (["bench"], 0.2), (["bench"], 3), (["bench", "serve"], 3)],
    ids=["spawning", "importing", "measuring", "serving"],
)
def test_interrupted(stories: Path, tmp_path: Path, verb: list[str], later: float) -> None:
    """As a terminal does it: everybody in the process group gets the signal, so long after there is a child."""
    command = [sys.executable, "-m", "llamina", *verb, "-m", str(stories), *LONG]
    with (tmp_path / "said").open("w+b") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        try:
            deadline = time.monotonic() + PATIENCE
            while len(group(process.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(later)
            start = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(PATIENCE)
            seconds, left = time.monotonic() - start, leftovers(process.pid)
        finally:
            if group(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        text = said.read().decode().strip()  # a newline ends the terminal's ^C
    assert (code, text, left) == (130, "error: interrupted", [])
    assert seconds < 5


STUCK = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

Path(sys.argv[0]).with_name("pid").write_text(str(os.getpid()))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        Path(sys.argv[0]).with_name("asked").touch()
        time.sleep(100)

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_a_server_that_is_busy_ends_with_the_process_that_started_it(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\n{STUCK}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    child = Child(replace(setup, engine="llama_server"), lambda *progress: None)
    child._pipe.send(("seconds", Task("prompt", 20), 0))
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    start = time.monotonic()
    child.close()
    assert time.monotonic() - start < 4
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
