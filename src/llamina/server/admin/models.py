"""`/admin/models`: list, load, unload, pull, delete. Loading and pulling go on after their answer, in the list."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.errors import LlaminaError
from llamina.server.admin.pulls import Pulls
from llamina.server.admin.schema import ModelDeleted, ModelState, ModelStates, PullState
from llamina.server.config import ModelProfile
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.model import WorkerModel
from llamina.server.models import Entry
from llamina.server.ollama.kept import keep
from llamina.server.ollama.manage import forget
from llamina.server.ollama.names import new_name


class LoadRequest(ModelProfile, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A model to load: one that is known by its id, or a new one with the fields of a profile."""

    id: str
    path: str = ""  # the same as `model`
    quant: str | None = None  # the same as `quantize`

    def profile(self) -> ModelProfile | None:
        """None: the model is known already. Raises ApiError for settings of a model that has its own."""
        if self.path and self.model:
            raise ApiError(400, "path and model are both given: they are the same, so give one", param="path")
        if self.quant and self.quantize:
            raise ApiError(400, "quant and quantize are both given: they are the same, so give one", param="quant")
        names = [field for field in ModelProfile.__struct_fields__ if field != "model"]
        given = {name: getattr(self, name) for name in names} | {"quantize": self.quant or self.quantize}
        if model := self.path or self.model:
            return ModelProfile(model, **given)
        if any(value not in (None, [], {}) for value in given.values()):
            message = "settings are given without a model: give its path or its name as model, too"
            raise ApiError(400, message, param="model")
        return None


class UnloadRequest(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    force: bool = False  # also while requests use it: they end with an error


class PullRequest(msgspec.Struct, forbid_unknown_fields=True):
    model: str  # of the catalogue, or user/repository:quantization
    id: str = ""  # what it is called here; by default the same


async def list_models(request: Request) -> Json[ModelStates]:
    """GET /admin/models: the models that are known, and those that are being pulled."""
    state = request.app.state
    entries = [described(entry) for entry in state.server.models.entries.values()]
    return json({"object": "list", "data": entries, "pulls": state.pulls.described()})


def described(entry: Entry) -> ModelState:
    now = entry.progress
    found: ModelState = {
        "id": entry.id,
        "status": entry.status,
        "progress": None if now is None else {"stage": now.stage, "done": now.done, "total": now.total},
        "error": entry.error or None,
        "inflight": entry.users,
        "created": entry.created,
        "last_used": entry.used_at,
        "profile": entry.profile,
    }
    if (model := entry.model) is not None:
        info = model.info
        found["loaded"] = {
            "path": info.path,
            "architecture": info.architecture,
            "context": info.context,
            "parameters": info.parameters,
            "mem_bytes": entry.memory,  # what its process has now
            "weight_bytes": info.weight_bytes,
            "device": info.device,
            "gpu_bytes": info.gpu_bytes,
            "pid": model.pid if isinstance(model, WorkerModel) else None,
        }
    return found


async def load(request: Request) -> Json[ModelState]:
    """POST /admin/models/load: 202, and the model's status becomes ready or failed."""
    server = request.app.state.server
    body = await read(request, LoadRequest)
    profile = body.profile()
    entry: Entry = server.models.add(new_name(body.id, "id"), profile) if profile else server.models.find(body.id)
    if entry.model is None:
        entry.status = "loading"
        server.jobs.start(f"load {entry.id}", _load(server, entry, profile))
    return json(described(entry), 202)


async def _load(server: Any, entry: Entry, profile: ModelProfile | None) -> None:
    """Load a model; a new one that can be loaded is known after a restart, too."""
    try:
        await server.models.load(entry)
        if profile is not None:
            await keep(server.store, entry.id, profile)
    except ApiError as error:
        entry.status, entry.error = "failed", error.message
    except (LlaminaError, OSError):
        return  # the entry has it; anything else is a mistake of ours, which the log of jobs tells


async def unload(request: Request) -> Json[ModelState]:
    """POST /admin/models/unload: the memory is free afterwards; the next request loads it again."""
    server = request.app.state.server
    body = await read(request, UnloadRequest)
    entry: Entry = server.models.find(body.id)
    if entry.busy and not body.force:
        message = f"requests use {entry.id!r}: ask again later, or with force"
        raise ApiError(409, message, "conflict_error", param="force")
    await server.jobs.cancel(f"load {entry.id}")
    await server.models.unload(entry)
    return json(described(entry))


async def pull(request: Request) -> Json[PullState]:
    """POST /admin/models/pull: 202; when it is here it is a model that can be asked for."""
    state = request.app.state
    body = await read(request, PullRequest)
    id = new_name(body.id or body.model, "id")
    if id in state.server.models.entries:
        raise ApiError(409, f"there is a model {id!r} already: choose another id", "conflict_error", param="id")
    pulls: Pulls = state.pulls
    return json(pulls.begin(state.server, new_name(body.model), id), 202)


async def delete(request: Request) -> Json[ModelDeleted]:
    """DELETE /admin/models/{id}: forget a model. Its file goes too, if it was pulled and no other model uses it."""
    server = request.app.state.server
    entry: Entry = server.models.find(request.path_params["id"])
    await forget(server, entry)
    return json({"id": entry.id, "deleted": True})


routes = [
    Route("/admin/models", list_models, methods=["GET"]),
    Route("/admin/models/load", load, methods=["POST"]),
    Route("/admin/models/unload", unload, methods=["POST"]),
    Route("/admin/models/pull", pull, methods=["POST"]),
    Route("/admin/models/{id:path}", delete, methods=["DELETE"]),
]
