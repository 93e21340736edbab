"""The states of a run, and its end with all that it had open."""

from dataclasses import replace
from typing import Any

from llamina.server.openai.assistants.objects import MESSAGE, STEP, now
from llamina.server.openai.assistants.schema import LastError
from llamina.server.store import Kept

ACTIVE = ("queued", "in_progress", "requires_action", "cancelling")
PATIENCE = 600  # seconds that a run waits for the outputs of tools


def changed(kept: Kept, status: str, **fields: Any) -> Kept:
    """The object in another state."""
    return replace(kept, status=status, body=kept.body | {"status": status} | fields)


def shown(kept: Kept) -> Any:
    """An object as it is answered: runs and steps have their usage when they have ended."""
    body = {name: value for name, value in kept.body.items() if name != "server"}  # which process works on it
    return body | {"usage": None} if "usage" in body and kept.status in ACTIVE else body


async def up_to_date(server: Any, run: Kept) -> Kept:
    """The run; expired if it waited too long for the outputs of tools."""
    if run.status != "requires_action" or now() < run.body["expires_at"]:
        return run
    ended = await end(server, run, "expired")
    return ended[-1] if ended else await server.store.get(run.kind, run.id) or run


async def end(server: Any, run: Kept, status: str, error: LastError | None = None) -> list[Kept]:
    """End a run as `cancelled`, `failed` or `expired`, with its open message and steps: all or nothing.

    What changed, the run last; nothing if the run has ended meanwhile.
    """
    parts = []
    for message in await server.store.all(MESSAGE, parent=run.parent, status=("in_progress",)):
        if message.body["run_id"] == run.id:
            why = {"incomplete_details": {"reason": f"run_{status}"}, "incomplete_at": now()}
            parts.append(changed(message, "incomplete", **why))
    for step in await server.store.all(STEP, parent=run.id, status=("in_progress",)):
        told = error and {"code": "server_error", "message": error["message"]}
        parts.append(changed(step, status, last_error=told, **{f"{status}_at": now()}))
    fields: dict[str, Any] = {"last_error": error, "required_action": None, "expires_at": None}
    if status != "expired":
        fields[f"{status}_at"] = now()
    parts.append(changed(run, status, **fields))
    return parts if await server.store.write([], parts, ACTIVE) else []
