"""Reading the header of a GGUF file on a web server, by ranges, without its data."""

import http.client
import re
import urllib.error
import urllib.request
from typing import NamedTuple

from llamina.errors import DownloadError, RequestError
from llamina.gguf.cursor import Incomplete
from llamina.gguf.header import parse
from llamina.gguf.reader import GGUF

_FIRST = 1 << 20
_MOST = 256 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class _Range(NamedTuple):
    data: bytes
    total: int  # bytes of the whole file
    tag: str | None  # changes when the file does


def open_url(url: str, *, timeout: float = 30.0) -> GGUF:
    """Metadata and tensor list of a file at an http(s) URL; the tensors have no data.

    Fetches 1 MiB, then twice as much until the header is complete, 256 MiB at the most. `timeout` is for
    each wait on the server, in seconds.
    """
    if not url.startswith(("http://", "https://")):
        raise RequestError(f"{url}: not an http or https address: use GGUF.open for a local file", "url")
    first = _fetch(url, 0, _FIRST, timeout)
    held = first.data
    while True:
        try:
            return GGUF.from_header(url, parse(url, memoryview(held), first.total), None)
        except Incomplete as more:
            wanted = min(max(2 * len(held), more.needed), _MOST, first.total)
            if wanted < more.needed:
                raise DownloadError(
                    f"{url}: the header takes {more.needed} bytes, {_MOST} is the most: download the file"
                ) from None
        part = _fetch(url, len(held), wanted, timeout)
        if (part.total, part.tag) != (first.total, first.tag):
            raise DownloadError(f"{url}: the file changed while it was read: try again")
        held += part.data


def _fetch(url: str, start: int, stop: int, timeout: float) -> _Range:
    """The bytes from `start` up to `stop` or the end of the file."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-{stop - 1}", "User-Agent": "llamina"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return _body(url, response, start, stop)
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: an address that is none
        status = error.code if isinstance(error, urllib.error.HTTPError) else None
        reason = f"the server answered {status}" if status else f"the request failed: {error}"
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise DownloadError(f"{url}: {reason}: check the address and the network") from error


def _body(url: str, response: http.client.HTTPResponse, start: int, stop: int) -> _Range:
    """The range in an answer, checked to be the one that was asked for."""
    if response.status != 206:
        raise DownloadError(
            f"{url}: the server answered {response.status}, it ignores Range requests: download the file"
        )
    said = response.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(said)
    if match is None or int(match[1]) != start or int(match[3]) <= start:
        raise DownloadError(f"{url}: the server answered the range {said!r} instead of {start}-{stop - 1}: try again")
    total = int(match[3])
    data = response.read(min(stop, total) - start)
    if len(data) != min(stop, total) - start:
        raise DownloadError(f"{url}: the connection broke after {start + len(data)} bytes: try again")
    return _Range(data, total, response.headers.get("ETag"))
