"""Files that hold a JSON object."""

import json
from pathlib import Path
from typing import Any

from llamina.errors import ModelFileError


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ModelFileError if there is none."""
    return parse_json(path.read_bytes(), path)


def parse_json(content: bytes | str, source: object) -> dict[str, Any]:
    """Return the JSON object that a text is; `source` is its name in errors. Raises ModelFileError if it is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{source} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{source} must be a JSON object, and is a {type(value).__name__}")
    return value
