"""By which names the server may be called, and by which web pages: against DNS rebinding and cross-site requests."""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from llamina.server.errors import ApiError
from llamina.server.protection.refusal import refuse
from llamina.server.protection.scopes import PUBLIC

LOCAL = ("localhost", ".localhost", "127.0.0.1", "[::1]")


class Hosts:
    """Refuses a `Host` that is not listed, and an `Origin` that is neither listed nor the server's own.

    `hosts` may have names, `.example.com` for all below it, and `*` for any.
    """

    def __init__(self, app: ASGIApp, hosts: list[str], origins: list[str]) -> None:
        self._app, self._hosts, self._origins = app, [host.lower() for host in hosts], origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers.getlist("host"), scope["path"])
            self._check_origin(headers)
        except ApiError as error:
            await refuse(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, given: list[str], path: str) -> None:
        if "*" in self._hosts or path in PUBLIC:  # a load balancer calls by address, and learns nothing
            return
        name = name_of(given[0]) if len(given) == 1 else ""
        if not any(name == host or (host.startswith(".") and name.endswith(host)) for host in self._hosts):
            message = f"the server is not called {name!r}: list the name in hosts"
            raise ApiError(421, message, "permission_error", code="unknown_host")

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return
        if urlsplit(origin).netloc.lower() == headers.get("host", "").lower():
            return
        message = f"pages of {origin} may not use this server: list the origin in cors_origins"
        raise ApiError(403, message, "permission_error", code="unknown_origin")


def name_of(host: str) -> str:
    """A `Host` without its port; addresses of IPv6 keep their brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].rstrip(".")


def default_hosts(address: str) -> list[str]:
    """The names of a server that listens on an address: local ones if that is, else any."""
    try:
        local = ipaddress.ip_address(address).is_loopback
    except ValueError:
        local = address.lower() == "localhost"
    return [*LOCAL, address if ":" not in address else f"[{address}]"] if local else ["*"]
