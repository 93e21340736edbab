"""Pictures at web addresses: fetched within limits, and from no other host than was named."""

import base64

import httpx

from llamina.errors import InvalidPicture
from llamina.vision.picture import LIMITS, Limits

SECONDS = 20.0  # for all of it


async def fetch(url: str, limits: Limits = LIMITS, seconds: float = SECONDS) -> bytes:
    """What is at an address. Redirections are not followed. Raises InvalidPicture if it cannot be had."""
    found = bytearray()
    try:
        async with httpx.AsyncClient(timeout=seconds) as client, client.stream("GET", url) as response:
            if response.status_code != 200:
                message = f"the picture at {url[:200]} cannot be had: the status is {response.status_code}, not 200"
                raise InvalidPicture(message)
            async for piece in response.aiter_bytes():
                found += piece
                if len(found) > limits.nbytes:
                    raise InvalidPicture(f"the picture at {url[:200]} has more than {limits.nbytes} bytes")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        if isinstance(error, InvalidPicture):
            raise
        raise InvalidPicture(f"the picture at {url[:200]} cannot be had: {error or type(error).__name__}") from error
    return bytes(found)


def host_of(url: str) -> str:
    """The host of an address, with its port if one is written. Raises InvalidPicture for what is no web address."""
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidPicture(f"{url[:200]!r} is not a web address: {error}") from error
    if found.scheme not in ("http", "https") or not found.host:
        raise InvalidPicture(f"{url[:200]!r} is not a web address: http:// or https:// is expected")
    return found.netloc.decode().rpartition("@")[2].lower()


def data_url(data: bytes) -> str:
    """The same as a `data:` URL; its kind is found when it is read."""
    return "data:application/octet-stream;base64," + base64.b64encode(data).decode()
