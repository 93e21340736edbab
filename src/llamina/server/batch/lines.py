"""The lines of a batch's input: read one at a time, and checked before any is answered."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import msgspec

from llamina.server.config import Limits

CUSTOM_ID = 512  # characters
MOST_ERRORS = 100  # that are told of an input


class Line(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One request."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


decode = msgspec.json.Decoder(Line).decode


class LineError(TypedDict):
    """What is wrong with a line of an input; None: with all of it."""

    code: str
    message: str
    line: int | None
    param: str | None


@dataclass
class Checked:
    """How many requests an input has, and what is wrong with it, as `errors` of a batch has it."""

    total: int = 0
    errors: list[LineError] = field(default_factory=list)

    def add(self, code: str, message: str, line: int | None = None, param: str | None = None) -> None:
        if len(self.errors) < MOST_ERRORS:
            self.errors.append({"code": code, "message": message, "line": line, "param": param})
        elif len(self.errors) == MOST_ERRORS:
            message = f"there are more errors: the first {MOST_ERRORS} are told"
            self.errors.append({"code": "too_many_errors", "message": message, "line": None, "param": None})


def lines(path: Path, most: int, without: frozenset[int] = frozenset()) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of each line that is not blank, cut after `most` + 1 bytes; some may be left out."""
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(most + 1):
            number += 1
            if len(line) > most and not line.endswith(b"\n"):
                while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                    pass
            if number not in without and not line.isspace():
                yield number, line


def check(path: Path, endpoint: str, limits: Limits) -> Checked:
    """Read an input once. It is fine if there are no errors."""
    found, seen = Checked(), set[str]()
    try:
        for number, line in lines(path, limits.body_bytes):
            found.total += 1
            if found.total > limits.batch_lines:
                found.add("too_many_tasks", f"the file has more than {limits.batch_lines} requests: divide it", number)
                break
            _check_line(found, number, line, endpoint, limits, seen)
    except FileNotFoundError:
        found.add("file_not_found", "the input file was deleted", param="input_file_id")
    if not found.total and not found.errors:
        found.add("empty_file", "the file has no requests: each line must be one", param="input_file_id")
    return found


def _check_line(found: Checked, number: int, line: bytes, endpoint: str, limits: Limits, seen: set[str]) -> None:
    if len(line) > limits.body_bytes:
        found.add("line_too_long", f"the line is longer than {limits.body_bytes} bytes", number)
        return
    try:
        request = decode(line)
    except msgspec.ValidationError as error:
        found.add("invalid_request", str(error), number)
        return
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found.add("invalid_json_line", f"the line is not valid JSON: {error}", number)
        return
    if request.method != "POST":
        found.add("invalid_method", f"method is {request.method!r}: must be POST", number, "method")
    if request.url != endpoint:
        found.add("invalid_url", f"url is {request.url!r}: must be the batch's endpoint {endpoint}", number, "url")
    if not bytes(request.body).startswith(b"{"):
        found.add("invalid_body", "body must be an object", number, "body")
    if not 1 <= len(request.custom_id) <= CUSTOM_ID:
        message = f"custom_id has {len(request.custom_id)} characters: must have 1 to {CUSTOM_ID}"
        found.add("invalid_custom_id", message, number, "custom_id")
    elif request.custom_id in seen:
        found.add("duplicate_custom_id", f"custom_id {request.custom_id!r} is not unique", number, "custom_id")
    seen.add(request.custom_id)
