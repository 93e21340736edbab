"""A thread as the messages of a chat: its messages, and the tool calls that runs made between them."""

from typing import Any

from llamina.server.content import Content
from llamina.server.model import Model
from llamina.server.openai.assistants.objects import MESSAGE, STEP
from llamina.server.openai.assistants.pictures import shown_parts
from llamina.server.store import Kept

Messages = list[dict[str, Any]]


async def conversation(store: Any, run: Kept) -> Messages:
    """What the model is to answer in this run: everything said before, and what the run itself has done so far."""
    kept = await store.all(MESSAGE, parent=run.parent)
    texts = {message.id: await _content(store, message) for message in kept}
    told: Messages = []
    runs: set[str] = set()
    for message in kept:
        made_by = message.body["run_id"]
        if made_by is None:
            told.append({"role": message.body["role"], "content": texts[message.id]})
        elif made_by != run.id and made_by not in runs:
            runs.add(made_by)  # at its first message, all that it did
            told += _done(await store.all(STEP, parent=made_by), texts)
    told += _done(await store.all(STEP, parent=run.id), texts)
    strategy = run.body["truncation_strategy"]
    if strategy["type"] == "last_messages":
        told = _last(told, strategy["last_messages"])
    instructions = run.body["instructions"]
    return [{"role": "system", "content": instructions}, *told] if instructions else told


async def _content(store: Any, message: Kept) -> Content:
    """A text, or parts where there are pictures among them."""
    parts = await shown_parts(store, message)
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _done(steps: list[Kept], texts: dict[str, Content]) -> Messages:
    """The messages and tool calls of a run. Calls without outputs, and messages that were deleted, are left out."""
    told: Messages = []
    for step in steps:
        details = step.body["step_details"]
        if step.body["type"] == "message_creation":
            text = texts.get(details["message_creation"]["message_id"])
            if text is not None:
                told.append({"role": "assistant", "content": text})
            continue
        calls = details["tool_calls"]
        if any(call["function"]["output"] is None for call in calls):
            continue
        if not told or told[-1]["role"] != "assistant" or "tool_calls" in told[-1]:
            told.append({"role": "assistant", "content": None})
        told[-1]["tool_calls"] = [_call(call) for call in calls]
        for call in calls:
            told.append({"role": "tool", "tool_call_id": call["id"], "content": call["function"]["output"]})
    return told


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = {name: call["function"][name] for name in ("name", "arguments")}
    return {"id": call["id"], "type": "function", "function": function}


def _last(messages: Messages, count: int) -> Messages:
    """The last messages; outputs of tools are not told without their call."""
    kept = messages[-count:]
    while kept and kept[0]["role"] == "tool":
        kept = kept[1:]
    return kept


async def fit(model: Model, messages: Messages, options: dict[str, Any], room: int) -> Messages | None:
    """The conversation without its oldest messages, so that its prompt has at most `room` tokens.

    Instructions stay, and so do the last user's message and what follows it; None if these are too long.
    """
    head = 1 if messages and messages[0]["role"] == "system" else 0
    starts = [i for i, message in enumerate(messages) if i >= head and message["role"] == "user"] or [head]

    async def fits(start: int) -> bool:
        found = await model.call("chat_prompt", messages=messages[:head] + messages[start:], options=options)
        return len(found["tokens"]) <= room

    if await fits(head):
        return messages
    low, high = 0, len(starts)  # the first that fits is among these, or there is none
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if await fits(starts[middle]) else (middle + 1, high)
    return messages[:head] + messages[starts[low] :] if low < len(starts) else None
