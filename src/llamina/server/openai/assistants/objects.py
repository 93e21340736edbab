"""The objects of the Assistants API as they are kept and answered, and the lists of them."""

import time
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import json
from llamina.server.ids import new_id
from llamina.server.openai.assistants.request import MessageRequest, check_metadata, texts_of
from llamina.server.store import Kept, Page
from llamina.server.store.store import made

# Kinds in the store are OpenAI's names of the objects.
ASSISTANT, THREAD, MESSAGE, RUN, STEP = "assistant", "thread", "thread.message", "thread.run", "thread.run.step"
MOST = 100  # objects of a page


def now() -> int:
    return int(time.time())


def new_message(asked: MessageRequest, thread: str, owner: str) -> Kept:
    """A message of a client. Raises ApiError for contents that no model here reads."""
    if asked.attachments:
        raise ApiError(400, "attachments are not supported: put their text into the content", param="attachments")
    texts, metadata = texts_of(asked.content), check_metadata(asked.metadata)
    return message(thread, owner, asked.role, texts, "completed", metadata=metadata)


def message(thread: str, owner: str, role: str, texts: list[str], status: str, **fields: Any) -> Kept:
    """A `thread.message`; `fields` are others than these."""
    id = new_id("msg_")
    body = {
        "id": id,
        "object": MESSAGE,
        "created_at": now(),
        "thread_id": thread,
        "status": status,
        "incomplete_details": None,
        "completed_at": now() if status == "completed" else None,
        "incomplete_at": None,
        "role": role,
        "content": [content(text) for text in texts],
        "assistant_id": None,
        "run_id": None,
        "attachments": [],
        "metadata": {},
    }
    return made(MESSAGE, id, body | fields, owner, thread, status)


def content(text: str) -> dict[str, Any]:
    """A part of a message."""
    return {"type": "text", "text": {"value": text, "annotations": []}}


def new_step(run: Kept, type: Literal["message_creation", "tool_calls"], details: dict[str, Any]) -> Kept:
    """A `thread.run.step` that begins now."""
    id = new_id("step_")
    body = {
        "id": id,
        "object": STEP,
        "created_at": now(),
        "run_id": run.id,
        "assistant_id": run.body["assistant_id"],
        "thread_id": run.parent,
        "type": type,
        "status": "in_progress",
        "cancelled_at": None,
        "completed_at": None,
        "expired_at": None,
        "failed_at": None,
        "last_error": None,
        "step_details": {"type": type, type: details[type]},
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


def deleted(kept: Kept) -> Response:
    return json({"id": kept.id, "object": f"{kept.kind}.deleted", "deleted": True})


async def listing(request: Request, kind: str, parent: str = "") -> Page:
    """The page of a list that the query asks for. Raises ApiError."""
    query = dict(request.query_params)
    run = query.get("run_id") if kind == MESSAGE else None
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise ApiError(400, f"order is {order!r}: must be 'asc' or 'desc'", param="order")
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit) <= MOST:
        raise ApiError(400, f"limit is {limit!r}: must be a number from 1 to {MOST}", param="limit")
    store, after, before = request.app.state.server.store, query.get("after"), query.get("before")
    page: Page | None
    if run is not None:
        whole = await store.all(kind, parent=parent)
        page = _cut([kept for kept in whole if kept.body["run_id"] == run], after, before, int(limit), order)
    else:
        owner = caller(request).id
        page = await store.page(kind, owner, parent=parent, after=after, before=before, limit=int(limit), order=order)
    if page is None:
        unknown = " or ".join(repr(id) for id in (after, before) if id is not None)
        raise ApiError(404, f"there is no {kind} {unknown} to continue at", "not_found_error")
    return page


def _cut(items: list[Kept], after: str | None, before: str | None, limit: int, order: str) -> Page | None:
    """The page of a list that is at hand, oldest first; None if `after` or `before` is not in it."""
    items = items if order == "asc" else items[::-1]
    ids = [kept.id for kept in items]
    if any(id is not None and id not in ids for id in (after, before)):
        return None
    items = items[ids.index(after) + 1 if after else 0 : ids.index(before) if before else None]
    from_end = before is not None and after is None
    return Page(items[-limit:] if from_end else items[:limit], len(items) > limit)


def answer_list(bodies: list[dict[str, Any]], more: bool) -> Response:
    """OpenAI's `list`."""
    ids = [body["id"] for body in bodies]
    return json(
        {
            "object": "list",
            "data": bodies,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": more,
        }
    )
