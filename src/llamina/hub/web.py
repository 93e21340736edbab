"""HTTP for downloads: redirections, retries, and a token that the Hub alone is sent."""

import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from llamina.errors import DownloadError

if TYPE_CHECKING:
    import httpx

CONNECT, READ = 15.0, 30.0  # seconds for a connection, and between two pieces of an answer
TRIES, FEW = 5, 3  # for a part of a file, and for a question about it
PAUSE = 0.5  # seconds before the second try; twice as long before each further one
LONGEST = 60.0  # seconds that a server may ask to be left alone
REDIRECTIONS = 10
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that may be another one the next time
TRUE = ("1", "on", "yes", "true")
HUB = "https://huggingface.co"


class Refused(DownloadError):
    """A server answered with a status that is an error."""

    def __init__(self, message: str, status: int, code: str = "", wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.wait = status, code, wait


class Broken(DownloadError):
    """There was no answer, or it ended early: it may work the next time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body has not been read."""

    response: "httpx.Response"
    place: str  # the address that answered, after redirections
    linked: Mapping[str, str]  # headers of the Hub's own answer, which may have been a redirection

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        return self.response.headers

    @property
    def tag(self) -> str:
        """What changes when the file does: its ETag, or the time of its last change; "" if neither is told."""
        return self.headers.get("ETag") or self.headers.get("Last-Modified") or ""


def offline() -> str | None:
    """The variable that forbids the network; None if it may be used."""
    names = ("LLAMINA_OFFLINE", "HF_HUB_OFFLINE")
    return next((name for name in names if os.environ.get(name, "").lower() in TRUE), None)


def check_online(what: str) -> None:
    """Raise DownloadError if the network must not be used."""
    if variable := offline():
        raise DownloadError(f"{what} is not here, and {variable} is set: unset it, and leave --offline out, to fetch")


def endpoint() -> str:
    """The address of the Hub, or of the mirror that HF_ENDPOINT names."""
    return (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def shown(url: str) -> str:
    """An address without what may be secret: a user's name and password, and the query, which may be a signature."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def token_for(url: str) -> str | None:
    """The token that an address may be sent: the user's, if the address is the Hub's."""
    return _own_token() if _origin(url) == _origin(endpoint()) else None


def _own_token() -> str | None:
    from huggingface_hub import get_token

    return get_token()


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


class Patience:
    """How often something is tried again, and how long is waited before it is."""

    def __init__(self, stop: threading.Event | None = None, tries: int = TRIES) -> None:
        self._stop, self._tries = stop or threading.Event(), tries
        self._failed = 0

    def renew(self) -> None:
        """Something was achieved since the last failure."""
        self._failed = 0

    def wait(self, error: DownloadError) -> None:
        """Wait before the next try. Raises the error if there shall be none, or if `stop` is set meanwhile."""
        self._failed += 1
        passing = isinstance(error, Broken) or (isinstance(error, Refused) and error.status in PASSING)
        if not passing or self._failed >= self._tries:
            raise error
        pause = PAUSE * 2 ** (self._failed - 1) * random.uniform(0.8, 1.2)
        asked = error.wait if isinstance(error, Refused) else None
        if self._stop.wait(pause if asked is None else min(asked, LONGEST)):
            raise error


class Web:
    """An HTTP client for one pull, used by several threads. `token` is the Hub's; by default that of the user."""

    def __init__(self, token: str | None = None) -> None:
        import httpx

        self._httpx, self._given = httpx, token
        self._hub = _origin(endpoint())
        headers = {"User-Agent": "llamina", "Accept-Encoding": "identity"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
        self._client = httpx.Client(timeout=httpx.Timeout(READ, connect=CONNECT), headers=headers, limits=limits)

    def close(self) -> None:
        self._client.close()

    @cached_property
    def _token(self) -> str | None:
        return self._given or _own_token()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[Answer]:
        """The answer of an address, redirections followed: 200, 206 or 304.

        The Hub's token goes to the Hub alone. Raises `Refused` for other statuses, and `Broken` if there is no answer
        or it ends early, also while its body is read.
        """
        linked: dict[str, str] = {}
        for _ in range(REDIRECTIONS):
            with self._ask(url, headers or {}) as response:
                if self._is_hub(url):
                    linked |= response.headers
                if not response.has_redirect_location:
                    self._check(url, response)
                    yield Answer(response, url, linked)
                    return
                url = self._redirected(url, response.headers["Location"])
        raise DownloadError(f"{shown(url)} redirects more than {REDIRECTIONS} times: check the address")

    def json(self, url: str, tries: int = FEW) -> Any:
        """The JSON value at an address. Raises DownloadError."""
        patience = Patience(tries=tries)
        while True:
            try:
                with self.get(url) as answer:
                    answer.response.read()
                    return answer.response.json()
            except (Refused, Broken) as error:
                patience.wait(error)
            except ValueError:
                raise DownloadError(f"{shown(url)} does not answer with JSON: check HF_ENDPOINT") from None

    @contextmanager
    def _ask(self, url: str, headers: Mapping[str, str]) -> "Iterator[httpx.Response]":
        own = {"Authorization": f"Bearer {self._token}"} if self._is_hub(url) and self._token else {}
        try:
            with self._client.stream("GET", url, headers={**headers, **own}) as response:
                yield response
        except self._httpx.InvalidURL:
            raise DownloadError(f"{shown(url)!r} is not a web address: check it") from None
        except self._httpx.UnsupportedProtocol:
            raise DownloadError(f"{shown(url)!r} is no http or https address: check it") from None
        except self._httpx.HTTPError as error:
            said = self._without_token(str(error).strip() or type(error).__name__).rstrip(".")
            raise Broken(f"{_origin(url)[1]} could not be reached ({said}): check the network and try again") from None

    def _is_hub(self, url: str) -> bool:
        return _origin(url) == self._hub

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
            raise DownloadError(f"{shown(url)} redirects to an address that is not https: it is not followed")
        return target

    def _check(self, url: str, response: "httpx.Response") -> None:
        status = response.status_code
        if status not in (200, 206, 304):
            code, asked = response.headers.get("X-Error-Code", ""), response.headers.get("Retry-After", "")
            wait = float(asked) if asked.isdecimal() else None
            said = f"{shown(url)}: the server answered {status} {response.reason_phrase}".rstrip()
            way = "wait, and try again" if status in PASSING else "check the address, and whether it needs a token"
            raise Refused(self._without_token(f"{said}: {way}"), status, code, wait)

    def _without_token(self, text: str) -> str:
        return text.replace(self._token, "…") if self._token else text
