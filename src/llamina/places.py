"""Where llamina keeps what it can make again (models, kernels) and what a server was given; where settings are."""

import os
import stat
import sys
import tempfile
from pathlib import Path

from llamina.errors import LlaminaError


def cache_dir() -> Path:
    """`$LLAMINA_CACHE`, or a `llamina` folder in the platform's cache folder; it need not exist.

    A user without a home folder (in a container, say) gets a private folder among the temporary files. Raises
    `LlaminaError` if there is none that can be trusted.
    """
    if own := os.environ.get("LLAMINA_CACHE"):
        try:
            return Path(own).expanduser()
        except RuntimeError:
            raise LlaminaError(
                f"LLAMINA_CACHE is {own!r}, and there is no such home folder: give a full path"
            ) from None
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "llamina"
    if sys.platform != "darwin" and (cache := os.environ.get("XDG_CACHE_HOME")):
        return Path(cache) / "llamina"
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and the user database does not know the user
        return _temporary()
    match sys.platform:
        case "win32":
            return home / "AppData" / "Local" / "llamina"
        case "darwin":
            return home / "Library" / "Caches" / "llamina"
    return home / ".cache" / "llamina"


def data_dir() -> Path:
    """`$LLAMINA_DATA`, or a `llamina` folder in the platform's folder for data; it need not exist."""
    if own := os.environ.get("LLAMINA_DATA"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        return cache_dir() / "data"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "llamina"
    if data := os.environ.get("XDG_DATA_HOME"):
        return Path(data) / "llamina"
    try:
        return Path.home() / ".local" / "share" / "llamina"
    except RuntimeError:  # no HOME, and the user database does not know the user
        return _temporary() / "data"


def config_dir() -> Path | None:
    """The `llamina` folder in the platform's folder for settings; it need not exist. None without a home folder."""
    if sys.platform == "win32":
        return Path(roaming) / "llamina" if (roaming := os.environ.get("APPDATA")) else None
    if sys.platform != "darwin" and (own := os.environ.get("XDG_CONFIG_HOME")):
        return Path(own) / "llamina"
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and the user database does not know the user
        return None
    return (
        home / "Library" / "Application Support" / "llamina" if sys.platform == "darwin" else home / ".config/llamina"
    )


def _temporary() -> Path:
    """A folder of this user's own: kernels in it are run, so nobody else may have written to it."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    try:
        folder = Path(tempfile.gettempdir()) / f"llamina-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise LlaminaError(
            f"there is no home folder, and no temporary one can be made: {error}: set LLAMINA_CACHE to a folder"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and (found.st_uid != user or found.st_mode & 0o022)):
        raise LlaminaError(
            f"there is no home folder, and {folder} is not a folder that this user alone can write to: "
            "set LLAMINA_CACHE to another one"
        )
    return folder
