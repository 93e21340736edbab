"""Forms with a file (`multipart/form-data`), read as they come: the file goes where it belongs piece by piece."""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from llamina.server.errors import ApiError

PARTS = 16  # that a form may have
FIELD_BYTES = 64 << 10  # of all fields that are no file
NAME = 255  # characters of a file's name

NEWS = (  # that the parser tells
    "part_begin", "header_field", "header_value", "header_end", "headers_finished", "part_data", "part_end", "end",
)  # fmt: skip


class Sink(Protocol):
    """Where a file goes as it comes."""

    @property
    def size(self) -> int:
        """Bytes so far."""

    async def write(self, data: bytes) -> None:
        """Take some more."""


class Form:
    """The fields of a form; `filename` is what the client calls the file that was written, None if there was none."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None


async def receive(request: Request, writing: Sink, limit: int) -> Form:
    """Write the part `file` to `writing`. Raises ApiError for a form that is none, or has more than is allowed."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit + (1 << 20):
        raise _too_large(limit)
    reader = _Reader()
    try:
        parser = reader.parser(request.headers.get("content-type", ""))
        async for data in _stream(request):
            parser.write(data)
            for part in reader.taken():
                await writing.write(part)
            if writing.size > limit:
                raise _too_large(limit)
        parser.finalize()
    except FormParserError as error:
        raise ApiError(400, f"the body is not a valid form: {error}") from error
    if not reader.ended:
        raise ApiError(400, "the form ends before its last boundary: send it whole")
    return reader.form


async def _stream(request: Request) -> AsyncIterator[bytes]:
    try:
        async for data in request.stream():
            yield data
    except ClientDisconnect:
        raise ApiError(400, "the client left before the form was whole") from None


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the file is larger than {limit} bytes", "payload_too_large", param="file")


class _Reader:
    """What the parser finds: fields, and the bytes of the file that were not written yet."""

    def __init__(self) -> None:
        self.form, self.ended = Form(), False
        self._name, self._is_file = "", False
        self._header, self._value, self._disposition = b"", b"", b""
        self._field, self._fresh = bytearray(), list[bytes]()
        self._parts = self._bytes = 0

    def parser(self, content_type: str) -> MultipartParser:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or b"boundary" not in options:
            raise ApiError(400, f"Content-Type is {content_type!r}: must be multipart/form-data with a boundary")
        callbacks: Any = {f"on_{name}": getattr(self, f"_{name}") for name in NEWS}
        return MultipartParser(options[b"boundary"], callbacks)

    def taken(self) -> list[bytes]:
        """Bytes of the file since the last time."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > PARTS:
            raise ApiError(400, f"the form has more than {PARTS} parts")
        self._disposition = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = _text(options.get(b"name", b""), "the name of a field")
        if not self._name:
            raise ApiError(400, "a part of the form has no name: Content-Disposition must give one")
        self._is_file = self._name == "file"
        if self._name in self.form.fields or (self._is_file and self.form.filename is not None):
            raise ApiError(400, f"{self._name} is given twice", param=self._name)
        if self._is_file:
            name = _text(options.get(b"filename", b""), "the name of the file")
            if not 1 <= len(name) <= NAME:
                message = f"the file's name has {len(name)} characters: filename must have 1 to {NAME}"
                raise ApiError(400, message, param="file")
            self.form.filename = name
        self._field = bytearray()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._fresh.append(data[start:end])
            return
        self._bytes += end - start
        if self._bytes > FIELD_BYTES:
            message = f"the form's fields have more than {FIELD_BYTES} bytes"
            raise ApiError(413, message, "payload_too_large", param=self._name)
        self._field += data[start:end]

    def _part_end(self) -> None:
        if not self._is_file:
            self.form.fields[self._name] = _text(bytes(self._field), self._name)

    def _end(self) -> None:
        self.ended = True


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ApiError(400, f"{what} is not valid UTF-8") from None
