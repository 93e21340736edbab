"""`/v1/batches`: requests in an uploaded file, their answers in other files."""

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.batch import cancel_batch, described, new_batch, resume_all, run
from llamina.server.batch.batch import ACTIVE, KIND, Batch, as_object
from llamina.server.batch.endpoints import ENDPOINTS
from llamina.server.caller import caller
from llamina.server.http import Json, json, read
from llamina.server.openai.files import expiry_seconds
from llamina.server.openai.lists import asked_page, kept_page, listed
from llamina.server.openai.schema import Listed
from llamina.server.protection.authenticate import check_scope
from llamina.server.store import Kept

MOST = 100  # of a list


class ExpiresAfter(msgspec.Struct, forbid_unknown_fields=True):
    anchor: Literal["created_at"]
    seconds: int


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


async def create(request: Request) -> Json[Batch]:
    """POST /v1/batches."""
    server, owner = request.app.state.server, caller(request).id
    body = await read(request, BatchRequest)
    check_endpoint(request, body.endpoint)
    expires = body.output_expires_after
    seconds = None if expires is None else expiry_seconds(expires.seconds, "output_expires_after.seconds")
    batch = await new_batch(
        server,
        owner,
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        completion_window=body.completion_window,
        metadata=body.metadata,
        output_expires_after=seconds,
    )
    await server.jobs.whole(begin(server, batch))
    return json(as_object(batch, {}))


def check_endpoint(request: Request, endpoint: str) -> None:
    """Raise ApiError if the caller may not ask an endpoint: a batch is no way around the scopes of a key."""
    if endpoint in ENDPOINTS:
        check_scope(caller(request), endpoint, "POST")


async def begin(server: Any, *new: Kept) -> None:
    """Keep a batch, the last of what is new, and let it run."""
    await server.store.insert_all(list(new))
    server.jobs.start(new[-1].id, run(server, new[-1].id))


async def list_batches(request: Request) -> Json[Listed[Batch]]:
    """GET /v1/batches."""
    data, more = await batches(request)
    return listed(data, more)


async def batches(request: Request) -> tuple[list[Batch], bool]:
    """The page of batches that a query string asks for, and whether there are more."""
    server, owner = request.app.state.server, caller(request).id
    page = await kept_page(request, KIND, asked_page(request, 20, MOST))
    return [
        await described(server, batch.id, owner) if batch.status in ACTIVE else as_object(batch, {})
        for batch in page.items
    ], page.more


async def retrieve(request: Request) -> Json[Batch]:
    """GET /v1/batches/{id}."""
    return json(await described(request.app.state.server, request.path_params["id"], caller(request).id))


async def cancel(request: Request) -> Json[Batch]:
    """POST /v1/batches/{id}/cancel."""
    return json(await cancelled(request))


async def cancelled(request: Request) -> Batch:
    """The batch, which is being cancelled. What was answered so far will be in its files."""
    server, id, owner = request.app.state.server, request.path_params["id"], caller(request).id
    if await cancel_batch(server, id, owner):
        await server.jobs.cancel(id)
        server.jobs.start(id, run(server, id))
    return await described(server, id, owner)


async def resume(server: Any) -> None:
    """Batches that an earlier process left go on."""
    await resume_all(server)


routes = [
    Route("/v1/batches", create, methods=["POST"]),
    Route("/v1/batches", list_batches, methods=["GET"]),
    Route("/v1/batches/{id}", retrieve, methods=["GET"]),
    Route("/v1/batches/{id}/cancel", cancel, methods=["POST"]),
]
