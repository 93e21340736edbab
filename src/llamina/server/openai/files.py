"""`/v1/files`: uploaded by forms, listed, read, deleted."""

from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.files import DAY, KIND, delete_file, expired, file_id, find_file, new_file, sweep_always
from llamina.server.http import Json, json
from llamina.server.multipart import Form, receive
from llamina.server.openai.lists import asked_page, kept_page, listed
from llamina.server.openai.schema import Deleted, File, Listed
from llamina.server.store import Kept

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
FIELDS = ("expires_after[anchor]", "expires_after[seconds]", "purpose")
EXPIRES = range(3600, 30 * DAY + 1)  # seconds
MOST = 10_000  # of a list


async def create(request: Request) -> Json[File]:
    """POST /v1/files. The file is on disk when the answer is sent."""
    server, id = request.app.state.server, file_id()
    try:
        with server.store.contents.write(id) as writing:
            form = await receive(request, writing, server.config.limits.file_bytes)
            purpose, seconds = _checked(form)
            await writing.finish()
    except OSError as error:
        raise ApiError(507, f"the file cannot be kept: {error.strerror}", "server_error") from error
    kept = new_file(id, caller(request).id, form.filename or "", purpose, writing.size, None)
    if seconds is not None:
        kept.body["expires_at"] = kept.created + seconds
    await server.jobs.whole(_keep(server, kept))
    return json(described(kept))


async def _keep(server: Any, kept: Kept) -> None:
    """Keep a file whose contents are on disk; they are deleted if that fails."""
    try:
        await server.store.insert_all([kept])
    except Exception:  # whatever it is: it is raised again, and the client gets it
        await server.store.contents.delete(kept.id)
        raise


def _checked(form: Form) -> tuple[str, int | None]:
    """The purpose, and after how many seconds the file expires."""
    if unknown := form.fields.keys() - set(FIELDS):
        name = min(unknown)
        raise ApiError(400, f"unknown field {name!r}: must be one of file, {', '.join(FIELDS)}", param=name)
    if form.filename is None:
        raise ApiError(400, "the form has no file: give one as the field file", param="file")
    purpose = form.fields.get("purpose")
    if purpose not in PURPOSES:
        raise ApiError(400, f"purpose is {purpose!r}: must be one of {', '.join(PURPOSES)}", param="purpose")
    given = [name for name in ("anchor", "seconds") if f"expires_after[{name}]" in form.fields]
    if not given:
        return purpose, 30 * DAY if purpose == "batch" else None  # as OpenAI keeps them
    anchor, seconds = (form.fields.get(f"expires_after[{name}]", "") for name in ("anchor", "seconds"))
    if anchor != "created_at":
        message = f"expires_after[anchor] is {anchor!r}: must be created_at"
        raise ApiError(400, message, param="expires_after.anchor")
    return purpose, expiry_seconds(seconds, "expires_after.seconds")


def expiry_seconds(given: str | int, param: str) -> int:
    """The seconds after which a file expires. Raises ApiError for a number that is not allowed."""
    text = str(given)
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) in EXPIRES):
        message = f"{param} is {given!r}: must be a number from {EXPIRES[0]} to {EXPIRES[-1]}"
        raise ApiError(400, message, param=param)
    return int(text)


async def list_files(request: Request) -> Json[Listed[File]]:
    """GET /v1/files."""
    asked = asked_page(request, MOST, MOST, ("purpose",))
    purpose = asked.others.get("purpose")
    page = await kept_page(request, KIND, asked, status=None if purpose is None else (purpose,))
    return listed([described(kept) for kept in page.items if not expired(kept)], page.more)


async def retrieve(request: Request) -> Json[File]:
    """GET /v1/files/{id}."""
    return json(described(await _named(request)))


async def content(request: Request) -> FileResponse:
    """GET /v1/files/{id}/content."""
    kept = await _named(request)
    path = request.app.state.server.store.contents.path(kept.id)
    headers = {"X-Content-Type-Options": "nosniff"}
    return FileResponse(path, headers=headers, media_type="application/octet-stream", filename=kept.body["filename"])


async def delete(request: Request) -> Json[Deleted]:
    """DELETE /v1/files/{id}."""
    id = request.path_params["id"]
    await delete_file(request.app.state.server, id, caller(request).id)
    return json({"id": id, "object": "file", "deleted": True})


async def _named(request: Request) -> Kept:
    return await find_file(request.app.state.server, request.path_params["id"], caller(request).id)


def described(kept: Kept) -> File:
    """A `file` object."""
    return {
        "id": kept.id,
        "object": "file",
        "bytes": kept.body["bytes"],
        "created_at": kept.created,
        "expires_at": kept.body["expires_at"],
        "filename": kept.body["filename"],
        "purpose": kept.status,
        "status": "processed",
        "status_details": None,
    }


async def resume(server: Any) -> None:
    """Files that have expired, and what a crash left of uploads, are deleted from now on."""
    server.jobs.start("files", sweep_always(server))


routes = [
    Route("/v1/files", create, methods=["POST"]),
    Route("/v1/files", list_files, methods=["GET"]),
    Route("/v1/files/{id}", retrieve, methods=["GET"]),
    Route("/v1/files/{id}", delete, methods=["DELETE"]),
    Route("/v1/files/{id}/content", content, methods=["GET"]),
]
