"""Where llamina keeps what it can make again: pulled models and compiled kernels."""

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """`$LLAMINA_CACHE`, or a `llamina` folder in the platform's cache folder."""
    if own := os.environ.get("LLAMINA_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "llamina"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llamina"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llamina"
