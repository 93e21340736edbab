"""Pictures in a thread's messages: by an address, or as files that were uploaded before."""

import asyncio
import base64
from typing import Any

from llamina.server.errors import ApiError
from llamina.server.files import KIND, expired, find_file
from llamina.server.openai.assistants.schema import MessagePart
from llamina.server.store import Kept

DETAILS = ("auto", "low", "high")  # which clients may ask for: the encoder's own preprocessing decides
PURPOSES = ("vision", "assistants", "user_data")  # of files that may be shown
LARGEST = 32 << 20  # bytes of a file
SOURCES = {"image_url": "url", "image_file": "file_id"}
Part = dict[str, Any]


def picture_part(part: Part, path: str) -> MessagePart:
    """A part of type image_url or image_file as it is kept. Raises ApiError for anything missing or unknown."""
    kind = part["type"]
    given, key = part.get(kind), SOURCES[kind]
    if part.keys() != {"type", kind} or not isinstance(given, dict) or given.keys() - {key, "detail"}:
        message = f"{path} must have type and {kind}, and that {key} and detail alone"
        raise ApiError(400, message, param=path)
    if not isinstance(given.get(key), str) or not given[key]:
        raise ApiError(400, f"{path}.{kind}.{key} is {given.get(key)!r}: must be a text", param=f"{path}.{kind}.{key}")
    detail = given.get("detail") or "auto"
    if detail not in DETAILS:
        message = f"{path}.{kind}.detail is {detail!r}: must be one of {', '.join(DETAILS)}"
        raise ApiError(400, message, param=f"{path}.{kind}.detail")
    if kind == "image_url":
        return {"type": "image_url", "image_url": {"url": given[key], "detail": detail}}
    return {"type": "image_file", "image_file": {"file_id": given[key], "detail": detail}}


async def check_files(server: Any, messages: list[Kept]) -> None:
    """Raise ApiError unless the owner of each message has the files that it shows, and they may be shown."""
    for message in messages:
        for part in message.body["content"]:
            if part["type"] != "image_file":
                continue
            file = await find_file(server, part["image_file"]["file_id"], message.owner)
            if file.status not in PURPOSES:
                known = ", ".join(PURPOSES)
                text = f"the purpose of {file.id} is {file.status!r}: a picture's must be one of {known}"
                raise ApiError(400, text, param="image_file.file_id")
            if file.body["bytes"] > LARGEST:
                text = f"{file.id} has {file.body['bytes']} bytes: a picture has at most {LARGEST}"
                raise ApiError(400, text, param="image_file.file_id")


async def shown_parts(store: Any, message: Kept) -> list[Part]:
    """A message's contents as the parts of a chat; files are `data:` URLs. Raises ApiError if one is gone."""
    found: list[Part] = []
    for part in message.body["content"]:
        if part["type"] == "text":
            found.append({"type": "text", "text": part["text"]["value"]})
            continue
        url = part["image_url"]["url"] if part["type"] == "image_url" else await _data_url(store, part, message.owner)
        found.append({"type": "image_url", "image_url": {"url": url}})
    return found


async def _data_url(store: Any, part: Part, owner: str) -> str:
    id = part["image_file"]["file_id"]
    file: Kept | None = await store.get(KIND, id, owner)
    if file is None or expired(file):
        message = f"the thread shows the file {id!r}, which is deleted or has expired: delete the message"
        raise ApiError(400, message, param="image_file.file_id")
    data = await asyncio.to_thread(store.contents.path(id).read_bytes)
    return f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}"
