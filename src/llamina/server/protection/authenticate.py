"""Who calls, by the key or the token that is shown, and whether that allows it. Denied, unless it is allowed."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from llamina.server.caller import CALLER, EVERYBODY, Caller
from llamina.server.config import Config
from llamina.server.errors import ApiError
from llamina.server.protection.keys import Keys
from llamina.server.protection.rates import Rates
from llamina.server.protection.refusal import refuse
from llamina.server.protection.scopes import PUBLIC, is_page, scope_for
from llamina.server.protection.tokens import Tokens, looks_like_token

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="llamina"'}


class Authenticate:
    """Puts the caller into `scope["caller"]`, or answers 401 or 403."""

    def __init__(self, app: ASGIApp, config: Config, keys: Keys) -> None:
        self._app, self._config, self._keys = app, config, keys
        self._tokens = Tokens(config.jwt) if config.jwt is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._is_public(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            await self._keys.refresh(scope["app"].state.server.store)
            found = self._caller(Headers(scope=scope)) if self._keys.required else EVERYBODY
            method = scope.get("method", "POST")  # a WebSocket is for generating
            check_scope(found, scope["path"], method)
        except ApiError as error:
            await refuse(error, scope, receive, send)
            return
        scope["caller"] = found
        CALLER.set(found)
        await self._app(scope, receive, send)

    def _is_public(self, path: str) -> bool:
        return path in PUBLIC or (self._config.open_page and is_page(path))

    def _caller(self, headers: Headers) -> Caller:
        """Raises ApiError if nothing is shown, or nothing that is known."""
        shown = shown_by(headers)
        if not shown:
            message = "an API key is needed: send it as Authorization: Bearer KEY, or as x-api-key"
            raise ApiError(401, message, "authentication_error", code="missing_api_key", headers=CHALLENGE)
        for text in shown:
            if (key := self._keys.find(text)) is not None:
                return self._made(key.id, key.scopes, key.rates)
        for text in shown:
            if self._tokens is not None and looks_like_token(text):
                try:
                    return self._made(*self._tokens.read(text), None)
                except ApiError as error:
                    error.headers = CHALLENGE
                    raise
        message = "the API key is not known here, or has expired"
        raise ApiError(401, message, "authentication_error", code="invalid_api_key", headers=CHALLENGE)

    def _made(self, id: str, scopes: frozenset[str], rates: Rates | None) -> Caller:
        return Caller(id, scopes, "" if self._config.share_prefixes else id, rates=rates)


def shown_by(headers: Headers) -> list[str]:
    """The keys and tokens of a request, as clients of OpenAI and of Anthropic send them."""
    shown = [key for key in headers.getlist("x-api-key") if key]
    for value in headers.getlist("authorization"):
        kind, _, text = value.partition(" ")
        if kind.lower() == "bearer" and text.strip():
            shown.insert(0, text.strip())
    return shown


def check_scope(caller: Caller, path: str, method: str) -> None:
    """Raise ApiError if the caller may not ask that."""
    needed = scope_for(path, method)
    if needed is not None and needed not in caller.scopes:
        message = f"{method} {path} needs the scope {needed}, which this key does not have"
        raise ApiError(403, message, "permission_error", code="insufficient_scope")
