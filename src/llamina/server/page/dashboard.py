"""`/dashboard`: what the models do, live. Numbers come as server-sent events; a request can be cancelled."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import event, events, json
from llamina.server.model import ModelError
from llamina.server.models import Entry, Models
from llamina.server.page.files import answer

EVERY = 1.0  # seconds between events
PATIENCE = 2.0  # seconds that a model has to say its numbers


async def page(request: Request) -> Response:
    """GET /dashboard."""
    return answer(request, "dashboard.html")


async def stream(request: Request) -> Response:
    """GET /dashboard/events: a snapshot every second, as long as the client listens."""
    return events(request, _snapshots(request.app.state.server.models))


async def _snapshots(models: Models) -> AsyncIterator[bytes]:
    while True:
        yield event(await snapshot(models))
        await asyncio.sleep(EVERY)


async def snapshot(models: Models) -> dict[str, Any]:
    """Every model with its status, and what a loaded one has counted and is doing now."""
    entries = list(models.entries.values())
    found = await asyncio.gather(*map(_described, entries))
    return {"time": time.time(), "models": {entry.id: each for entry, each in zip(entries, found, strict=True)}}


async def _described(entry: Entry) -> dict[str, Any]:
    model, head = entry.model, {"status": entry.status}
    if model is None:
        return head
    try:
        async with asyncio.timeout(PATIENCE):
            stats, sequences = await asyncio.gather(model.call("stats"), model.call("sequences"))
    except (TimeoutError, ModelError):
        return {"status": "busy"}
    return head | {"stats": stats, "sequences": sequences, "max_sequences": model.info.max_sequences}


async def cancel(request: Request) -> Response:
    """DELETE /dashboard/requests/{model}/{id}: end an answer; its client is told that it was cancelled."""
    entry, id = request.app.state.server.models.find(request.path_params["model"]), request.path_params["id"]
    if entry.model is None or not await entry.model.call("cancel_sequence", id=id):
        raise ApiError(404, f"{entry.id!r} has no request {id} under way", "not_found_error")
    return json({"model": entry.id, "id": id, "cancelled": True})


routes = [
    Route("/dashboard", page, methods=["GET"], include_in_schema=False),
    Route("/dashboard/events", stream, methods=["GET"], include_in_schema=False),
    Route("/dashboard/requests/{model:path}/{id:int}", cancel, methods=["DELETE"], include_in_schema=False),
]
