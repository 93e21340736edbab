"""The admin API as an application beside that of the server, with the same state."""

from starlette.applications import Starlette

from llamina.server.admin import keys, loras, models, watch
from llamina.server.admin.pulls import Pulls
from llamina.server.app import error_handlers
from llamina.server.config import Config
from llamina.server.protection.chain import admin_protection
from llamina.server.protection.keys import Keys

PARTS = (models, loras, keys, watch)


def build_admin(app: Starlette, config: Config, known: Keys) -> Starlette:
    """An application over the state of `app`; it answers when that has started."""
    admin = Starlette(
        routes=[route for part in PARTS for route in part.routes],
        exception_handlers=error_handlers(),  # type: ignore[arg-type]
        middleware=admin_protection(config, known),
    )
    admin.state = app.state
    admin.state.pulls = Pulls()
    return admin
