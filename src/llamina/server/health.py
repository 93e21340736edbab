"""`/health`, for load balancers: open to everyone, and says nothing else."""

from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from llamina import __version__
from llamina.server.http import Json, json


class Health(TypedDict):
    status: Literal["loading", "ok"]
    version: str


async def health(request: Request) -> Json[Health]:
    """200 when the server answers and no model is being loaded for the first time, else 503."""
    entries = request.app.state.server.models.entries.values()
    loading = any(entry.status == "loading" for entry in entries) and not any(e.status == "ready" for e in entries)
    return json({"status": "loading" if loading else "ok", "version": __version__}, 503 if loading else 200)


routes = [Route("/health", health, methods=["GET"]), Route("/v1/health", health, methods=["GET"])]
