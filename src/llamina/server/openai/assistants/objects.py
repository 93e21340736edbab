"""The objects of the Assistants API as they are kept and answered, and the lists of them."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Literal

from starlette.requests import Request

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import Json, json
from llamina.server.ids import new_id
from llamina.server.openai.assistants.request import MessageRequest, check_metadata, parts_of
from llamina.server.openai.assistants.schema import MessagePart, RunStep, StepDetails, ThreadMessage
from llamina.server.openai.lists import asked_page, cut_page, kept_page
from llamina.server.openai.schema import Deleted
from llamina.server.store import Kept, Page
from llamina.server.store.store import made

# Kinds in the store are OpenAI's names of the objects.
ASSISTANT, THREAD, MESSAGE, RUN, STEP = "assistant", "thread", "thread.message", "thread.run", "thread.run.step"
MOST = 100  # objects of a page
Role = Literal["user", "assistant"]
Status = Literal["in_progress", "completed", "incomplete"]
FindOne = Callable[[Request], Awaitable[Kept]]


def now() -> int:
    return int(time.time())


def new_message(asked: MessageRequest, thread: str, owner: str) -> Kept:
    """A message of a client. Raises ApiError for contents that no model here reads."""
    if asked.attachments:
        raise ApiError(400, "attachments are not supported: put their text into the content", param="attachments")
    parts, metadata = parts_of(asked.content), check_metadata(asked.metadata)
    return message(thread, owner, asked.role, parts, "completed", metadata=metadata)


def message(thread: str, owner: str, role: Role, parts: list[MessagePart], status: Status, **fields: Any) -> Kept:
    """A `thread.message`; `fields` are others than these."""
    id = new_id("msg_")
    body: ThreadMessage = {
        "id": id,
        "object": "thread.message",
        "created_at": now(),
        "thread_id": thread,
        "status": status,
        "incomplete_details": None,
        "completed_at": now() if status == "completed" else None,
        "incomplete_at": None,
        "role": role,
        "content": parts,
        "assistant_id": None,
        "run_id": None,
        "attachments": [],
        "metadata": {},
    }
    return made(MESSAGE, id, body | fields, owner, thread, status)


def new_step(run: Kept, details: StepDetails) -> Kept:
    """A `thread.run.step` that begins now."""
    id = new_id("step_")
    body: RunStep = {
        "id": id,
        "object": "thread.run.step",
        "created_at": now(),
        "run_id": run.id,
        "assistant_id": run.body["assistant_id"],
        "thread_id": run.parent,
        "type": details["type"],
        "status": "in_progress",
        "cancelled_at": None,
        "completed_at": None,
        "expired_at": None,
        "failed_at": None,
        "last_error": None,
        "step_details": details,
        "metadata": {},
        "usage": None,
    }
    return made(STEP, id, body, run.owner, run.id, "in_progress")


async def find(request: Request, kind: str, id: str, parent: str = "") -> Kept:
    """An object of the caller's. Raises ApiError if there is none of this id under this parent."""
    kept: Kept | None = await request.app.state.server.store.get(kind, id, caller(request).id)
    if kept is None or kept.parent != parent:
        raise ApiError(404, f"there is no {kind} {id!r}", "not_found_error")
    return kept


async def change_metadata(request: Request, find_one: FindOne, metadata: dict[str, str] | None) -> Kept:
    """The object with other metadata, if any are given. What a run changes in it at the same time stays changed."""
    while True:
        kept = await find_one(request)
        if metadata is None:
            return kept
        body = kept.body | {"metadata": check_metadata(metadata)}
        if await request.app.state.server.store.change(kept.kind, kept.id, body=body, if_status=(kept.status,)):
            return replace(kept, body=body)


def deleted(kept: Kept) -> Json[Deleted]:
    return json({"id": kept.id, "object": f"{kept.kind}.deleted", "deleted": True})


async def listing(request: Request, kind: str, parent: str = "") -> Page:
    """The page of a list that the query asks for. Raises ApiError."""
    asked = asked_page(request, others=("run_id",) if kind == MESSAGE else ("include",) if kind == STEP else ())
    if (run := asked.others.get("run_id")) is None:
        return await kept_page(request, kind, asked, parent=parent)
    every = await request.app.state.server.store.all(kind, parent=parent)
    items, more = cut_page([kept for kept in every if kept.body["run_id"] == run], asked, lambda kept: kept.id)
    return Page(list(items), more)
