"""Who asks: the key of a request, which owns what the request makes."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from llamina.server.protection.rates import Rates

SCOPES = frozenset({"chat:read", "chat:write", "embed:read", "admin:read", "admin:write"})
CLIENT_SCOPES = frozenset({"chat:read", "chat:write", "embed:read"})  # of a key that is given none
NOBODY_COUNTS: Callable[[int], None] = lambda tokens: None  # noqa: E731
EVERYONE_MAY: Callable[[], None] = lambda: None  # noqa: E731


@dataclass(frozen=True)
class Caller:
    """`id` is that of an API key or a token's subject; everybody is the same caller on a server without keys."""

    id: str = ""
    scopes: frozenset[str] = SCOPES
    salt: str = ""  # prefixes in the KV cache are shared by requests with the same one
    rates: Rates | None = None  # of a key that has its own
    spend: Callable[[int], None] = NOBODY_COUNTS  # is told of every token that is read or made
    admit: Callable[[], None] = EVERYONE_MAY  # raises ApiError if one more request is over a rate, else counts it


EVERYBODY = Caller()

# Of the request that runs, for what is far below its handler. Tasks that a request starts inherit both.
CALLER: ContextVar[Caller] = ContextVar("llamina_caller", default=EVERYBODY)
TIMEOUT: ContextVar[float | None] = ContextVar("llamina_timeout", default=None)  # seconds for one answer


def caller(request: HTTPConnection) -> Caller:
    """The caller that the server's protection found."""
    found: Caller = request.scope.get("caller", EVERYBODY)
    return found
