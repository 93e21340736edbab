"""Who may administrate: whoever shows a key for it; while there is none, callers on this machine."""

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from llamina.server.caller import SCOPES, Caller
from llamina.server.config import Config
from llamina.server.errors import ApiError
from llamina.server.protection.authenticate import Authenticate
from llamina.server.protection.keys import Keys
from llamina.server.protection.refusal import refuse

ADMINISTRATOR = Caller("", SCOPES)


class AdminOnly:
    """The address is that of the connection itself: what headers say of it is not believed."""

    def __init__(self, app: ASGIApp, config: Config, keys: Keys) -> None:
        self._app, self._keys = app, keys
        self._authenticate = Authenticate(app, config, keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        await self._keys.refresh(scope["app"].state.server.store)
        if self._keys.for_admins:
            await self._authenticate(scope, receive, send)
        elif is_local(scope.get("client")):
            scope["caller"] = ADMINISTRATOR
            await self._app(scope, receive, send)
        else:
            message = "the admin API is for this machine alone until an admin_key is configured"
            await refuse(ApiError(403, message, "permission_error"), scope, receive, send)


def is_local(client: tuple[str, int] | None) -> bool:
    """Whether a connection comes from this machine."""
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
