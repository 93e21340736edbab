"""`/v1/batch_jobs`: the same batches, whose input may come in the request and whose output is read by one path."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from llamina.server.batch import described, find_batch, new_batch
from llamina.server.batch.batch import ACTIVE, Batch, as_object, batch_of
from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.files import DAY, file_id, find_file, new_file
from llamina.server.http import Json, json, read
from llamina.server.openai.batches import batches, begin, cancelled, check_endpoint
from llamina.server.openai.lists import listed
from llamina.server.openai.schema import Listed
from llamina.server.store import Kept

JSONL = "application/jsonl"


class BatchJobRequest(msgspec.Struct, forbid_unknown_fields=True):
    input_jsonl: str | None = None
    input_file_id: str | None = None
    endpoint: str = "/v1/chat/completions"
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None


async def create(request: Request) -> Json[Batch]:
    """POST /v1/batch_jobs."""
    server, owner = request.app.state.server, caller(request).id
    body = await read(request, BatchJobRequest)
    check_endpoint(request, body.endpoint)
    if (body.input_jsonl is None) == (body.input_file_id is None):
        raise ApiError(400, "either input_jsonl or input_file_id must be given", param="input_jsonl")
    if body.input_file_id is not None:
        batch = await new_batch(
            server,
            owner,
            endpoint=body.endpoint,
            input_file_id=body.input_file_id,
            completion_window=body.completion_window,
            metadata=body.metadata,
        )
        new = [batch]
    else:
        new = await _with_input(server, owner, body)
    await server.jobs.whole(begin(server, *new))
    return json(_job(as_object(new[-1], {})), 202)


async def _with_input(server: Any, owner: str, body: BatchJobRequest) -> list[Kept]:
    """The file that the input becomes, and its batch: to be kept together."""
    id, content = file_id(), (body.input_jsonl or "").encode()
    batch = await batch_of(server, owner, body.endpoint, id, len(content), body.completion_window, body.metadata)
    with server.store.contents.write(id) as writing:
        await writing.write(content)
        await writing.finish()
    file = new_file(id, owner, f"{batch.id}.jsonl", "batch", writing.size, batch.created + 30 * DAY)
    return [file, batch]


async def list_jobs(request: Request) -> Json[Listed[Batch]]:
    """GET /v1/batch_jobs."""
    data, more = await batches(request)
    return listed([_job(batch) for batch in data], more)


async def retrieve(request: Request) -> Json[Batch]:
    """GET /v1/batch_jobs/{id}."""
    return json(_job(await described(request.app.state.server, request.path_params["id"], caller(request).id)))


async def output(request: Request) -> Response:
    """GET /v1/batch_jobs/{id}/output: the answers, a line each. What failed is in the error file."""
    server, owner = request.app.state.server, caller(request).id
    batch = await find_batch(server, request.path_params["id"], owner)
    if batch.status in ACTIVE:
        message = f"the batch is {batch.status}: its output is there when it has ended"
        raise ApiError(409, message, "conflict_error", code="batch_not_finished")
    if (id := batch.body.get("output_file_id")) is None:
        return Response(b"", media_type=JSONL)
    file = await find_file(server, id, owner)
    return FileResponse(server.store.contents.path(file.id), media_type=JSONL)


async def cancel(request: Request) -> Json[Batch]:
    """POST /v1/batch_jobs/{id}/cancel."""
    return json(_job(await cancelled(request)))


def _job(batch: Batch) -> Batch:
    return {**batch, "object": "batch_job"}


routes = [
    Route("/v1/batch_jobs", create, methods=["POST"]),
    Route("/v1/batch_jobs", list_jobs, methods=["GET"]),
    Route("/v1/batch_jobs/{id}", retrieve, methods=["GET"]),
    Route("/v1/batch_jobs/{id}/output", output, methods=["GET"]),
    Route("/v1/batch_jobs/{id}/cancel", cancel, methods=["POST"]),
]
