"""`/api/pull`, `/api/create`, `/api/copy` and `/api/delete`."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llamina import hub
from llamina.errors import DownloadError
from llamina.server.config import ModelProfile
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.models import Entry, Models
from llamina.server.ollama import kept
from llamina.server.ollama.answer import Lines, ndjson
from llamina.server.ollama.conversation import Message, conversation
from llamina.server.ollama.modelfile import Modelfile, modelfile_of
from llamina.server.ollama.names import find, new_name
from llamina.server.ollama.options import read_options
from llamina.server.ollama.schema import StatusLine
from llamina.server.ollama.template import Template

SUCCESS: StatusLine = {"status": "success"}
HOSTS = ("hf.co/", "huggingface.co/")  # that names of repositories may begin with


# ---- pull ------------------------------------------------------------------------------------------------


class PullRequest(msgspec.Struct, forbid_unknown_fields=True):
    model: str = ""
    name: str = ""  # its name in older clients
    stream: bool | None = None
    insecure: bool | None = None  # these three are ignored by Ollama, too
    username: str | None = None
    password: str | None = None


class Pull:
    """A model on its way here, in a thread; iterate for the lines of its progress. Leaving it early ends it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[StatusLine | BaseException | None] = asyncio.Queue()
        self._left = threading.Event()
        self.path = ""
        self._thread = self._loop.run_in_executor(None, self._run)

    def _run(self) -> None:
        try:
            self.path = str(hub.pull(self._name, self._progress))
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _progress(self, what: str, done: int, total: int) -> None:
        if self._left.is_set():
            raise DownloadError(f"{self._name} is not wanted any more")
        source = hub.entry_of(self._name)
        line: StatusLine = {"status": f"pulling {what}", "total": total, "completed": done}
        if source:
            line["digest"] = f"sha256:{source.sha256}"
        self._put(line)

    def _put(self, item: StatusLine | BaseException | None) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def __aiter__(self) -> AsyncIterator[StatusLine]:
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._left.set()


async def pull(request: Request) -> Json[StatusLine] | Lines[StatusLine]:
    """POST /api/pull: a model of the catalogue, or a repository of Hugging Face."""
    body = await read(request, PullRequest)
    name = body.model or body.name
    for host in HOSTS:
        name = name.removeprefix(host)
    id = new_name(name)
    lines = _pulled(request.app.state.server, id)
    if body.stream is False:
        async for _ in lines:
            pass
        return json(SUCCESS)
    first = await anext(lines)  # a name that cannot be pulled is an answer of its own, not a line

    async def all_lines() -> AsyncIterator[StatusLine]:
        yield {"status": "pulling manifest"}
        yield first
        async for line in lines:
            yield line

    return ndjson(all_lines())


async def _pulled(server: Any, id: str) -> AsyncIterator[StatusLine]:
    task = Pull(id)
    async for line in task:
        yield line
    await know(server, id, task.path)
    yield SUCCESS


async def know(server: Any, id: str, path: str) -> None:
    """Make a model known that was pulled, unless another has its id."""
    if id not in server.models.entries:
        profile = ModelProfile(path)
        server.models.add(id, profile)
        await kept.keep(server.store, id, profile)


# ---- create, copy, delete --------------------------------------------------------------------------------


class CreateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What a Modelfile has. Models are made of models that are known; files are not taken."""

    model: str = ""
    name: str = ""  # its name in older clients
    from_: str = msgspec.field(default="", name="from")
    parameters: dict[str, Any] | None = None
    system: str | None = None
    template: str | None = None
    messages: list[Message] | None = None
    license: str | list[str] | None = None
    stream: bool | None = None
    files: dict[str, str] | None = None
    draft_files: dict[str, str] | None = None
    adapters: dict[str, str] | None = None
    quantize: str | None = None
    quantization: str | None = None
    draft_quantize: str | None = None
    remote_host: str | None = None
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    info: dict[str, Any] | None = None

    def modelfile(self, base: Modelfile, limit: int) -> Modelfile:
        """What the new model is created with, over what the one it is made from was. Raises ApiError."""
        for name in ("files", "draft_files", "adapters", "quantize", "quantization", "draft_quantize", "remote_host"):
            if getattr(self, name):
                message = f"{name} is given: a model is created from another that is here, with parameters of its own"
                raise ApiError(400, message, param=name)
        for name in ("renderer", "parser"):
            if getattr(self, name):
                raise ApiError(400, f"{name} is given: the chat template decides that here", param=name)
        read_options(self.parameters, "parameters").engine_options()
        if self.template:
            Template(self.template)
        conversation(self.messages or [], limit)
        license = "\n".join(self.license) if isinstance(self.license, list) else self.license
        return Modelfile(
            self.from_,
            {**base.parameters, **(self.parameters or {})},
            base.system if self.system is None else self.system,
            base.template if self.template is None else self.template,
            base.messages if self.messages is None else self.messages,
            base.license if license is None else license,
        )


async def create(request: Request) -> Json[StatusLine] | Lines[StatusLine]:
    """POST /api/create: another model's file with defaults of its own."""
    server = request.app.state.server
    body = await read(request, CreateRequest)
    id = new_name(body.model or body.name)
    if not body.from_:
        raise ApiError(400, "from is missing: it names the model that the new one is made from", param="from")
    profile, base = _source(server.models, body.from_)
    modelfile = body.modelfile(base, server.config.limits.messages)
    profile = msgspec.structs.replace(profile, aliases=[], sampling={**profile.sampling, **modelfile.sampling()})
    if (context := read_options(modelfile.parameters).num_ctx) is not None:
        profile = msgspec.structs.replace(profile, context=context)
    await _put(server, id, profile, modelfile)

    async def lines() -> AsyncIterator[StatusLine]:
        yield SUCCESS

    return json(SUCCESS) if body.stream is False else ndjson(lines())


def _source(models: Models, name: str) -> tuple[ModelProfile, Modelfile]:
    """The profile of a known model, or that of a pulled one."""
    try:
        entry = find(models, name)
    except ApiError:
        return ModelProfile(str(hub.find(name))), Modelfile()
    return entry.profile, modelfile_of(entry)


async def _put(server: Any, id: str, profile: ModelProfile, modelfile: Modelfile) -> None:
    """Make a created model known. It may replace another that was created, but none that was configured."""
    models: Models = server.models
    if (old := models.entries.get(id)) is not None and old.modelfile is not None:
        await models.remove(old)
    models.add(id, profile).modelfile = modelfile
    await kept.keep(server.store, id, profile, modelfile)


class CopyRequest(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    destination: str


async def copy(request: Request) -> Response:
    """POST /api/copy: the same model under another name."""
    server = request.app.state.server
    body = await read(request, CopyRequest)
    entry = find(server.models, body.source)
    profile = msgspec.structs.replace(entry.profile, aliases=[])
    await _put(server, new_name(body.destination, "destination"), profile, modelfile_of(entry))
    return Response()


class DeleteRequest(msgspec.Struct, forbid_unknown_fields=True):
    model: str = ""
    name: str = ""  # its name in older clients


async def delete(request: Request) -> Response:
    """DELETE /api/delete: forget a model. Its file goes too, if it was pulled and no other model uses it."""
    server = request.app.state.server
    body = await read(request, DeleteRequest)
    await forget(server, find(server.models, body.model or body.name))
    return Response()


async def forget(server: Any, entry: Entry) -> None:
    """Forget a model, and delete its file if it was pulled and no other model uses it. Raises ApiError."""
    models: Models = server.models
    await models.remove(entry)
    await kept.forget(server.store, entry.id)
    if all(other.profile.model != entry.profile.model for other in models.entries.values()):
        await asyncio.to_thread(_delete_file, entry.profile.model)


def _delete_file(model: str) -> None:
    """Delete a model's files if they are among those that were pulled; others belong to somebody else."""
    for pulled in hub.models():
        if model in (pulled.name, str(pulled.path)):
            hub.remove(pulled)


routes = [
    Route("/api/pull", pull, methods=["POST"]),
    Route("/api/create", create, methods=["POST"]),
    Route("/api/copy", copy, methods=["POST"]),
    Route("/api/delete", delete, methods=["DELETE"]),
]
