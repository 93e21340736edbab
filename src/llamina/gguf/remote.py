"""Reads the header of a GGUF file on a web server by range requests, without its data."""

import http.client
import re
import urllib.error
import urllib.request
from typing import NamedTuple

from llamina.errors import DownloadError, RequestError
from llamina.gguf.cursor import Incomplete
from llamina.gguf.header import parse
from llamina.gguf.reader import GGUF

_FIRST_BYTES = 1 << 20
_MAX_BYTES = 256 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class _Range(NamedTuple):
    data: bytes
    total: int  # bytes of the whole file
    tag: str | None  # ETag: changes when the file does


def open_url(url: str, *, token: str | None = None, timeout: float = 30.0) -> GGUF:
    """Return the metadata and tensor list of a file at an http(s) URL; the tensors have no data.

    Fetches 1 MiB, then twice as much until the header is complete, at most 256 MiB. `token` is sent to the
    server of the URL, and to none that it redirects to. `timeout` is in seconds, for each wait on the server. Raises
    RequestError, DownloadError, and what a damaged file raises.
    """
    if not url.startswith(("http://", "https://")):
        raise RequestError(f"{url}: not an http or https address: use GGUF.open for a local file", "url")
    first = _fetch(url, 0, _FIRST_BYTES, token, timeout)
    received = first.data
    while True:
        try:
            return GGUF.from_header(url, parse(url, memoryview(received), first.total), None)
        except Incomplete as more:
            wanted = min(max(2 * len(received), more.needed), _MAX_BYTES, first.total)
            if wanted < more.needed:
                raise DownloadError(
                    f"{url}: the header takes {more.needed} bytes, at most {_MAX_BYTES} are fetched: download the file"
                ) from None
        part = _fetch(url, len(received), wanted, token, timeout)
        if (part.total, part.tag) != (first.total, first.tag):
            raise DownloadError(f"{url}: the file changed while it was read: try again")
        received += part.data


def _fetch(url: str, start: int, stop: int, token: str | None, timeout: float) -> _Range:
    """Return the bytes from `start` up to `stop` or the end of the file. Raises DownloadError."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-{stop - 1}", "User-Agent": "llamina"})
    if token is not None:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return _body(url, response, start, stop)
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a malformed address
        status = error.code if isinstance(error, urllib.error.HTTPError) else None
        reason = f"the server answered {status}" if status else f"the request failed: {error}"
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise DownloadError(f"{url}: {reason}: check the address and the network") from error


def _body(url: str, response: http.client.HTTPResponse, start: int, stop: int) -> _Range:
    """Return the range in a response. Raises DownloadError if it is not the requested one."""
    if response.status != 206:
        raise DownloadError(
            f"{url}: the server answered {response.status}, it ignores Range requests: download the file"
        )
    content_range = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(content_range)
    if match is None or int(match[1]) != start or int(match[3]) <= start:
        raise DownloadError(
            f"{url}: the server sent the range {content_range!r} instead of {start}-{stop - 1}: try again"
        )
    total = int(match[3])
    data = response.read(min(stop, total) - start)
    if len(data) != min(stop, total) - start:
        raise DownloadError(f"{url}: the connection broke after {start + len(data)} bytes: try again")
    return _Range(data, total, response.headers.get("ETag"))
