"""`/admin/loras`: the LoRA adapters of a loaded model."""

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.admin.schema import Adapter, AdapterDeleted, AdapterList
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.model import Model, WorkerModel
from llamina.server.models import Entry


class LoraRequest(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    name: str | None = None  # by default the file's
    model: str = ""


async def list_loras(request: Request) -> Json[AdapterList]:
    """GET /admin/loras: those of every loaded model, or of one (?model=)."""
    models, wanted = request.app.state.server.models, request.query_params.get("model")
    entries: list[Entry] = [models.find(wanted)] if wanted else list(models.entries.values())
    data: list[Adapter] = []
    for entry in entries:
        if entry.model is not None:
            names = await entry.model.call("adapters")
            data += [{"name": name, "model": entry.id, "path": entry.profile.adapters.get(name)} for name in names]
    return json({"object": "list", "data": data})


async def load(request: Request) -> Json[Adapter]:
    """POST /admin/loras: requests name it as `lora` from now on; it stays when the model is loaded again."""
    body = await read(request, LoraRequest)
    async with request.app.state.server.models.use(body.model) as (entry, model):
        name = await model.call("load_adapter", path=body.path, name=body.name)
        _remember(entry, model, entry.profile.adapters | {name: body.path})
    return json({"name": name, "model": entry.id, "path": body.path}, 201)


async def unload(request: Request) -> Json[AdapterDeleted]:
    """DELETE /admin/loras/{name}, of the model ?model=."""
    name = request.path_params["name"]
    async with request.app.state.server.models.use(request.query_params.get("model")) as (entry, model):
        if name not in await model.call("adapters"):
            raise ApiError(404, f"{entry.id!r} has no adapter {name!r}", "not_found_error", param="name")
        await model.call("unload_adapter", name=name)
        _remember(entry, model, {other: path for other, path in entry.profile.adapters.items() if other != name})
    return json({"name": name, "model": entry.id, "deleted": True})


def _remember(entry: Entry, model: Model, adapters: dict[str, str]) -> None:
    entry.profile = msgspec.structs.replace(entry.profile, adapters=adapters)
    if isinstance(model, WorkerModel):
        model.adapter_files = adapters


routes = [
    Route("/admin/loras", list_loras, methods=["GET"]),
    Route("/admin/loras", load, methods=["POST"]),
    Route("/admin/loras/{name:path}", unload, methods=["DELETE"]),
]
