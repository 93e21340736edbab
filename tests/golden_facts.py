"""The golden facts in tests/golden: their folder, the tiny models' specs, and unpacking."""

import json
import lzma
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
SPECS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "archs.json").read_text(encoding="utf-8"))


def unpack(name: str, folder: Path) -> Path:
    """The path of a golden file, unpacked into `folder` if it is stored as `.xz`.

    Several processes may share the folder. Raises FileNotFoundError if there is no such file.
    """
    if (GOLDEN / name).exists():
        return GOLDEN / name
    path = folder / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(GOLDEN / f"{name}.xz") as packed, tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            shutil.copyfileobj(packed, file)
        os.replace(file.name, path)
    return path
