"""What every API checks of the tools that a client describes, and how it tells what it leaves out."""

from typing import Any

import msgspec

from llamina.server.config import Limits
from llamina.server.errors import ApiError

WARNINGS = "x-llamina-warnings"  # the header that names what was asked for and left out
LONGEST_HEADER = 1000  # characters


def check_count(tools: list[dict[str, Any]], limits: Limits) -> None:
    """Raise ApiError if there are more tools than may be, or one is larger than a schema may be."""
    if len(tools) > limits.tools:
        raise ApiError(400, f"there are {len(tools)} tools: {limits.tools} are allowed", param="tools")
    for i, tool in enumerate(tools):
        if len(msgspec.json.encode(tool)) > limits.schema_bytes:
            message = f"tools[{i}] is larger than {limits.schema_bytes} bytes"
            raise ApiError(400, message, param=f"tools[{i}]")


def read_schema(schema: dict[str, Any], param: str) -> dict[str, Any]:
    """A schema of arguments, without keywords that are null.

    Raises ApiError if its properties are not a map of names to schemas.
    """
    given = {key: value for key, value in schema.items() if value is not None}
    if not isinstance(given.get("properties", {}), dict):
        raise ApiError(400, f"{param}.properties must be an object: names with their schemas", param=param)
    return given


def warning_headers(warnings: list[str]) -> dict[str, str]:
    """The header of an answer, in characters that one may have and no longer than clients take; none without any."""
    text = "; ".join(warnings)[:LONGEST_HEADER]
    return {WARNINGS: "".join(c if c.isascii() and c.isprintable() else "?" for c in text)} if text else {}
