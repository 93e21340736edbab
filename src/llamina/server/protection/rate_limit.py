"""So many requests and tokens a minute, and so many requests at a time: of each key, and of all together."""

import math
from dataclasses import replace

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.server.caller import CALLER, EVERYBODY, Caller
from llamina.server.config import Config
from llamina.server.errors import ApiError
from llamina.server.protection.buckets import Account
from llamina.server.protection.rates import Rates
from llamina.server.protection.refusal import refuse
from llamina.server.protection.scopes import PUBLIC, is_page

MOST = 4096  # accounts that are remembered; those that nothing would change for are forgotten first


class RateLimit:
    """Answers 429 with Retry-After to what is over a limit, and tells all others what is left."""

    def __init__(self, app: ASGIApp, config: Config) -> None:
        self._app, self._config = app, config
        self._all = _account(config.rates)
        self._accounts: dict[str, Account] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] in PUBLIC or is_page(scope["path"]):
            await self._app(scope, receive, send)
            return
        caller: Caller = scope.get("caller", EVERYBODY)
        own = self._account(caller)
        accounts = (own, self._all)
        if (error := _refused(own, self._all)) is not None:
            await refuse(error, scope, receive, send)
            return

        def spend(tokens: int) -> None:
            for account in accounts:
                account.spend(tokens)

        def admit() -> None:
            if (error := _refused(own, self._all, under_way=1)) is not None:
                raise error
            for account in accounts:
                account.take_request()

        scope["caller"] = counted = replace(caller, spend=spend, admit=admit)
        CALLER.set(counted)
        for account in accounts:
            account.running += 1
            account.take_request()
        try:
            await self._app(scope, receive, _telling(send, self._all.headers() | own.headers()))
        finally:
            for account in accounts:
                account.running -= 1

    def _account(self, caller: Caller) -> Account:
        if (found := self._accounts.get(caller.id)) is None:
            if len(self._accounts) >= MOST:
                self._accounts = {id: account for id, account in self._accounts.items() if not account.idle}
            found = self._accounts[caller.id] = _account(caller.rates or self._config.key_rates)
        return found


def _account(rates: Rates) -> Account:
    return Account(rates.requests, rates.tokens, rates.concurrent)


def _refused(own: Account, everyones: Account, under_way: int = 0) -> ApiError | None:
    """The error of a request that is over a limit. `under_way`: requests that are its own connection."""
    for account, whose in ((own, "this key"), (everyones, "all callers together")):
        if (found := account.obstacle(under_way)) is not None:
            return _over(account, whose, *found)
    return None


def _over(account: Account, whose: str, what: str, seconds: float) -> ApiError:
    wait = max(1, math.ceil(seconds))
    headers = {"Retry-After": str(wait), **account.headers()}
    message = f"the rate limit of {whose} is reached: {what}: ask again in {wait} s"
    return ApiError(429, message, "rate_limit_error", code="rate_limit_exceeded", headers=headers)


def _telling(send: Send, headers: dict[str, str]) -> Send:
    """`send` with headers added to the response. Nothing is done to what follows."""
    if not headers:
        return send
    extra = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *extra]
        await send(message)

    return tell
