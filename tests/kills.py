"""Processes that write files, killed while they do so."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

BEGIN = 60.0  # seconds in which a process must have begun to write


def kill_once(command: Sequence[str], folder: Path, moment: float, signal: int) -> bool:
    """Start a process, and end it so many seconds after a new file is in `folder`; False if it was done before."""
    known = set(folder.iterdir())
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + BEGIN
    while not set(folder.iterdir()) - known and process.poll() is None:
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.01)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(signal)
    return process.wait(BEGIN) != 0
