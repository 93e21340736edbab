"""An exception that nobody expected is a 500 in the API's shape, and a line in the log that quotes nothing."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.server.errors import answer, api_error


class Mistakes:
    """The last to catch what a handler raises. A response that has begun is cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            found = api_error(error)
            if not begun and scope["type"] == "http":
                await answer(found, scope["path"])(scope, receive, send)
