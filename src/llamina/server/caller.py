"""Who asks: the key of a request, which owns what the request makes."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

SCOPES = frozenset({"chat:read", "chat:write", "embed:read", "admin:read", "admin:write"})


@dataclass(frozen=True)
class Caller:
    """`id` is that of an API key or a token's subject; everybody is the same caller on a server without keys."""

    id: str = ""
    scopes: frozenset[str] = SCOPES


EVERYBODY = Caller()


def caller(request: HTTPConnection) -> Caller:
    """The caller that the server's protection found."""
    found: Caller = request.scope.get("caller", EVERYBODY)
    return found
