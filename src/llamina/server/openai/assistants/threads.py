"""`/v1/threads` and their messages: conversations that the server keeps."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import Json, json, parse, read, read_bytes
from llamina.server.ids import new_id
from llamina.server.openai.assistants.objects import (
    MESSAGE,
    RUN,
    THREAD,
    change_metadata,
    deleted,
    find,
    listing,
    new_message,
    now,
)
from llamina.server.openai.assistants.pictures import check_files
from llamina.server.openai.assistants.request import (
    MessageRequest,
    MetadataUpdate,
    ThreadRequest,
    ThreadUpdate,
    check_metadata,
    check_resources,
)
from llamina.server.openai.assistants.schema import Thread, ThreadMessage
from llamina.server.openai.assistants.states import ACTIVE, up_to_date
from llamina.server.openai.lists import listed
from llamina.server.openai.schema import Deleted, Listed
from llamina.server.store import Kept
from llamina.server.store.store import made


async def create(request: Request) -> Json[Thread]:
    """POST /v1/threads. A body is not needed."""
    depth = request.app.state.server.config.limits.depth
    asked = parse(await read_bytes(request) or b"{}", ThreadRequest, depth)
    new = thread_and_messages(request, asked)
    await check_files(request.app.state.server, new[1:])
    await request.app.state.server.store.insert_all(new)
    return json(new[0].body)


def thread_and_messages(request: Request, asked: ThreadRequest, more: Sequence[MessageRequest] = ()) -> list[Kept]:
    """A new thread, and its first messages. Raises ApiError for what cannot be kept."""
    server, owner, id = request.app.state.server, caller(request).id, new_id("thread_")
    check_resources(asked.tool_resources)
    messages, most = [*asked.messages, *more], server.config.limits.messages
    if len(messages) > most:
        raise ApiError(400, f"there are {len(messages)} messages: {most} are allowed", param="messages")
    metadata = check_metadata(asked.metadata)
    body: Thread = {
        "id": id,
        "object": "thread",
        "created_at": now(),
        "metadata": metadata,
        "tool_resources": {},
    }
    return [made(THREAD, id, body, owner), *(new_message(message, id, owner) for message in messages)]


async def retrieve(request: Request) -> Json[Thread]:
    """GET /v1/threads/{id}."""
    return json((await thread_of(request)).body)


async def update(request: Request) -> Json[Thread]:
    """POST /v1/threads/{id}."""
    asked = await read(request, ThreadUpdate)
    check_resources(asked.tool_resources)
    return json((await change_metadata(request, thread_of, asked.metadata)).body)


async def delete(request: Request) -> Json[Deleted]:
    """DELETE /v1/threads/{id}, with its messages and runs; one that is under way is ended."""
    server = request.app.state.server
    thread = await thread_of(request)
    for run in await server.store.all(RUN, parent=thread.id, status=ACTIVE):
        await server.jobs.cancel(run.id)
    await server.store.delete(THREAD, thread.id, thread.owner)
    return deleted(thread)


async def thread_of(request: Request) -> Kept:
    """The thread that the path names. Raises ApiError."""
    return await find(request, THREAD, request.path_params["thread"])


# ---- messages --------------------------------------------------------------------------------------------


async def create_message(request: Request) -> Json[ThreadMessage]:
    """POST /v1/threads/{id}/messages. Nobody speaks while a run is under way."""
    server = request.app.state.server
    thread = await thread_of(request)
    message = new_message(await read(request, MessageRequest), thread.id, thread.owner)
    await check_files(server, [message])
    run = await server.store.get(RUN, thread.status) if thread.status else None
    if run is not None and (await up_to_date(server, run)).status in ACTIVE:
        raise ApiError(400, f"no message can be added to {thread.id} while the run {run.id} is active: cancel it first")
    await check_room(server, thread, 1)
    await server.store.insert_all([message])
    return json(message.body)


async def check_room(server: Any, thread: Kept, more: int) -> None:
    """Raise ApiError if a thread would have more messages than a conversation may have: a run reads them all."""
    there, most = sum((await server.store.counts(MESSAGE, parent=thread.id)).values()), server.config.limits.messages
    if there + more > most:
        raise ApiError(400, f"{thread.id} has {there} messages: {most} are allowed: begin another thread")


async def list_messages(request: Request) -> Json[Listed[ThreadMessage]]:
    """GET /v1/threads/{id}/messages."""
    page = await listing(request, MESSAGE, (await thread_of(request)).id)
    return listed([kept.body for kept in page.items], page.more)


async def retrieve_message(request: Request) -> Json[ThreadMessage]:
    """GET /v1/threads/{id}/messages/{id}."""
    return json((await _message(request)).body)


async def update_message(request: Request) -> Json[ThreadMessage]:
    """POST /v1/threads/{id}/messages/{id}."""
    asked = await read(request, MetadataUpdate)
    return json((await change_metadata(request, _message, asked.metadata)).body)


async def delete_message(request: Request) -> Json[Deleted]:
    """DELETE /v1/threads/{id}/messages/{id}. One that is being written cannot be deleted."""
    message = await _message(request)
    if message.status == "in_progress":
        raise ApiError(400, f"{message.id} is being written: cancel the run {message.body['run_id']} first")
    await request.app.state.server.store.delete(MESSAGE, message.id, message.owner)
    return deleted(message)


async def _message(request: Request) -> Kept:
    return await find(request, MESSAGE, request.path_params["message"], (await thread_of(request)).id)


routes = [
    Route("/v1/threads", create, methods=["POST"]),
    Route("/v1/threads/{thread}", retrieve, methods=["GET"]),
    Route("/v1/threads/{thread}", update, methods=["POST"]),
    Route("/v1/threads/{thread}", delete, methods=["DELETE"]),
    Route("/v1/threads/{thread}/messages", create_message, methods=["POST"]),
    Route("/v1/threads/{thread}/messages", list_messages, methods=["GET"]),
    Route("/v1/threads/{thread}/messages/{message}", retrieve_message, methods=["GET"]),
    Route("/v1/threads/{thread}/messages/{message}", update_message, methods=["POST"]),
    Route("/v1/threads/{thread}/messages/{message}", delete_message, methods=["DELETE"]),
]
