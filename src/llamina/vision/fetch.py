"""Pictures at web addresses, fetched within limits."""

import time

import httpx

from llamina.errors import InvalidPicture
from llamina.vision.picture import LIMITS, Limits

SECONDS = 20.0  # for all of it


def fetch(url: str, limits: Limits = LIMITS, seconds: float = SECONDS) -> bytes:
    """What is at an address. Redirections are not followed. Raises InvalidPicture if it cannot be had."""
    found, end = bytearray(), time.monotonic() + seconds
    try:
        with httpx.stream("GET", url, timeout=seconds, follow_redirects=False) as response:
            if response.status_code != 200:
                raise _failure(url, f"the status is {response.status_code}, not 200")
            for piece in response.iter_bytes():
                found += piece
                if len(found) > limits.nbytes:
                    raise _failure(url, f"it has more than {limits.nbytes} bytes")
                if time.monotonic() > end:
                    raise _failure(url, f"it takes more than {seconds} seconds")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _failure(url, str(error) or type(error).__name__) from error
    return bytes(found)


def _failure(url: str, why: str) -> InvalidPicture:
    return InvalidPicture(f"the picture at {url[:200]} cannot be had: {why}", "messages")


def host_of(url: str) -> str:
    """The host of an address, with its port if one is written. Raises InvalidPicture for what is no web address."""
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidPicture(f"{url[:200]!r} is not a web address: {error}", "messages") from error
    return found.netloc.decode().rpartition("@")[2].lower()
