"""`/api/tags`, `/api/show`, `/api/ps` and `/api/version`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.models import Entry, Models
from llamina.server.ollama.file_info import digest, facts, metadata, tensors
from llamina.server.ollama.modelfile import modelfile_of
from llamina.server.ollama.names import find, shown
from llamina.server.ollama.options import CENTURY
from llamina.server.ollama.schema import Details, Named, Running, RunningModel, Shown, Tag, Tags, Version

VERSION = "0.32.15"  # of Ollama's API that this follows: clients ask it to know what they may send
NEVER = timedelta(seconds=CENTURY)  # a model that is kept for ever


class ShowRequest(msgspec.Struct, forbid_unknown_fields=True):
    model: str = ""
    name: str = ""  # its name in older clients
    verbose: bool | None = None
    system: str | None = None
    template: str | None = None
    options: dict[str, Any] | None = None


async def tags(request: Request) -> Json[Tags]:
    """GET /api/tags: every model that can be asked for."""
    entries = list(request.app.state.server.models.entries.values())
    return json({"models": await asyncio.to_thread(lambda: [_listed(entry) for entry in entries])})


def _listed(entry: Entry) -> Tag:
    found = facts(entry.profile.model)
    return {
        **_named(entry),
        "modified_at": _time(found.modified),
        "size": found.size,
        "capabilities": found.capabilities,
    }


def _named(entry: Entry) -> Named:
    found, modelfile, name = facts(entry.profile.model), modelfile_of(entry), shown(entry.id)
    details: Details = {**found.details, "parent_model": modelfile.parent}
    return {"name": name, "model": name, "digest": digest(found, modelfile.text("")), "details": details}


async def running(request: Request) -> Json[Running]:
    """GET /api/ps: the loaded models, and those on their way, with how far they are."""
    models: Models = request.app.state.server.models
    loaded = [entry for entry in models.entries.values() if entry.model is not None or entry.status == "loading"]
    return json({"models": await asyncio.to_thread(lambda: [_running(entry) for entry in loaded])})


def _running(entry: Entry) -> RunningModel:
    info, seconds, now = entry.model.info if entry.model is not None else None, entry.idle_seconds_left, entry.progress
    left, named = NEVER if seconds is None else timedelta(seconds=seconds), _named(entry)
    found: RunningModel = {
        "name": named["name"],
        "model": named["model"],
        "digest": named["digest"],
        "details": named["details"],
        "size": info.weight_bytes if info is not None else entry.memory,
        "size_vram": info.gpu_bytes if info is not None else 0,
        "context_length": info.context if info is not None else 0,
        "expires_at": _time(datetime.now(UTC) + left),
    }
    if info is None:
        found["loading"] = None if now is None else {"stage": now.stage, "done": now.done, "total": now.total}
    return found


async def show(request: Request) -> Json[Shown]:
    """POST /api/show: all that is known of a model."""
    body = await read(request, ShowRequest)
    entry = find(request.app.state.server.models, body.model or body.name)
    return json(await asyncio.to_thread(_shown, entry, bool(body.verbose)))


def _shown(entry: Entry, verbose: bool) -> Shown:
    found, modelfile = facts(entry.profile.model), modelfile_of(entry)
    if found.path is None:
        raise ApiError(404, f"the file of {entry.id!r} is not there: pull it first", "not_found_error")
    answer: Shown = {
        "modelfile": "# Modelfile of this model; to build another on it, keep FROM\n" + modelfile.text(entry.id),
        "template": modelfile.template or entry.profile.chat_template or found.template,
        "details": {**found.details, "parent_model": modelfile.parent},
        "model_info": metadata(found.path, verbose),
        "capabilities": found.capabilities,
        "modified_at": _time(found.modified),
    }
    if license := modelfile.license or found.license:
        answer["license"] = license
    if parameters := "\n".join(f"{key:30} {value}" for key, value in modelfile.pairs()):
        answer["parameters"] = parameters
    if modelfile.system:
        answer["system"] = modelfile.system
    if modelfile.messages:
        answer["messages"] = [{"role": m.role, "content": m.content or ""} for m in modelfile.messages]
    if verbose:
        answer["tensors"] = tensors(found.path)
    return answer


async def version(request: Request) -> Json[Version]:
    """GET and HEAD /api/version."""
    return json({"version": VERSION})


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


routes = [
    Route("/api/tags", tags, methods=["GET"]),
    Route("/api/ps", running, methods=["GET"]),
    Route("/api/show", show, methods=["POST"]),
    Route("/api/version", version, methods=["GET"]),
]
