"""The admin API as an application beside that of the server, with the same state."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.admin import keys, loras, models, watch
from llamina.server.admin.pulls import Pulls
from llamina.server.app import error_handlers
from llamina.server.config import Config
from llamina.server.http import json
from llamina.server.openapi import document
from llamina.server.protection.chain import admin_protection
from llamina.server.protection.keys import Keys

PARTS = (models, loras, keys, watch)


async def openapi(request: Request) -> Response:
    """GET /admin/openapi.json: the document of these routes."""
    return json(document(request.app.routes))


DOCUMENT = Route("/admin/openapi.json", openapi, methods=["GET"], include_in_schema=False)


def build_admin(app: Starlette, config: Config, known: Keys) -> Starlette:
    """An application over the state of `app`; it answers when that has started."""
    admin = Starlette(
        routes=[DOCUMENT, *(route for part in PARTS for route in part.routes)],
        exception_handlers=error_handlers(),  # type: ignore[arg-type]
        middleware=admin_protection(config, known),
    )
    admin.state = app.state
    admin.state.pulls = Pulls()
    return admin
