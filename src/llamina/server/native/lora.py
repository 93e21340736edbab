"""`/lora-adapters`: the loaded LoRAs, and those that act on requests which name none."""

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.http import Json, json, read
from llamina.server.native.request import LoraId, scales
from llamina.server.native.schema import AdapterScale, Success


async def list_adapters(request: Request) -> Json[list[AdapterScale]]:
    """GET /lora-adapters."""
    async with request.app.state.server.models.use(request.query_params.get("model", "")) as (entry, model):
        names = await model.call("adapters")
    paths, acting = entry.profile.adapters, model.adapters
    return json(
        [
            {"id": id, "name": name, "path": paths.get(name, name), "scale": acting.get(name, 0.0)}
            for id, name in enumerate(names)
        ]
    )


async def set_adapters(request: Request) -> Json[Success]:
    """POST /lora-adapters: the scales from now on; one that is not in the list is off."""
    body = await read(request, list[LoraId])
    async with request.app.state.server.models.use(request.query_params.get("model", "")) as (_, model):
        wanted = scales(body, await model.call("adapters"))
        model.adapters = {name: scale for name, scale in wanted.items() if scale}
    return json({"success": True})


routes = [
    Route("/lora-adapters", list_adapters, methods=["GET"]),
    Route("/lora-adapters", set_adapters, methods=["POST"]),
]
