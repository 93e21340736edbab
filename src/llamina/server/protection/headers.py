"""Headers that tell browsers to do nothing with an answer but show it as what it is."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
HSTS = (b"strict-transport-security", b"max-age=31536000")


class SecurityHeaders:
    """Adds the headers to every response. A page of ours may bring a Content-Security-Policy of its own."""

    def __init__(self, app: ASGIApp, tls: bool, cross_origin: bool) -> None:
        self._app = app
        self._headers = [h for h in HEADERS if not (cross_origin and h[0] == b"cross-origin-resource-policy")]
        self._headers += [HSTS] if tls else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message.get("headers", ())
                own = any(name.lower() == POLICY[0] for name, _ in given)
                message["headers"] = [*given, *self._headers, *([] if own else [POLICY])]
            await send(message)

        await self._app(scope, receive, add)
