"""`/admin/health`, `/admin/stats` and `/admin/requests`: how the server does, and what runs."""

from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from llamina import __version__
from llamina.backends.pressure import memory_pressure
from llamina.server.admin.schema import AdminHealth, Cancelled, Memory, ModelStatus, RequestList, Stats
from llamina.server.errors import ApiError
from llamina.server.http import Json, json
from llamina.server.models import Entry, Models


def _loaded(request: Request) -> list[Entry]:
    models: Models = request.app.state.server.models
    return [entry for entry in models.entries.values() if entry.model is not None]


async def health(request: Request) -> Json[AdminHealth]:
    """GET /admin/health: every model's status; "degraded" if one failed."""
    entries = request.app.state.server.models.entries.values()
    failed = any(entry.status == "failed" for entry in entries)
    statuses: dict[str, ModelStatus] = {
        entry.id: {"status": entry.status, "error": entry.error or None} for entry in entries
    }
    return json({"status": "degraded" if failed else "ok", "version": __version__, "models": statuses})


async def stats(request: Request) -> Json[Stats]:
    """GET /admin/stats: counters, gauges and memory of every loaded model, and how scarce memory is."""
    found = {}
    for entry in _loaded(request):
        if entry.model is not None:
            found[entry.id] = await entry.model.call("stats") | {"inflight": entry.users}
    pressure = memory_pressure()
    memory: Memory = {
        "total": pressure.total,
        "available": pressure.available,
        "stalled": pressure.stalled,
        "used": pressure.used,
        "level": pressure.level,
    }
    return json({"models": found, "memory_pressure": memory})


async def requests(request: Request) -> Json[RequestList]:
    """GET /admin/requests: what runs and waits in each model, without anything of its text."""
    data: list[dict[str, Any]] = []
    for entry in _loaded(request):
        if entry.model is not None:
            data += [{"model": entry.id, **sequence} for sequence in await entry.model.call("sequences")]
    return json({"object": "list", "data": data})


async def cancel(request: Request) -> Json[Cancelled]:
    """DELETE /admin/requests/{model}/{id}: end an answer; its client is told that it was cancelled."""
    models: Models = request.app.state.server.models
    entry, id = models.find(request.path_params["model"]), request.path_params["id"]
    if entry.model is None or not await entry.model.call("cancel_sequence", id=id):
        raise ApiError(404, f"{entry.id!r} has no request {id} under way", "not_found_error")
    return json({"model": entry.id, "id": id, "cancelled": True})


routes = [
    Route("/admin/health", health, methods=["GET"]),
    Route("/admin/stats", stats, methods=["GET"]),
    Route("/admin/requests", requests, methods=["GET"]),
    Route("/admin/requests/{model:path}/{id:int}", cancel, methods=["DELETE"]),
]
