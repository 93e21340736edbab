"""Files that clients gave to keep, and that batches wrote for them: an object in the store, contents beside it."""

import asyncio
import logging
import time
from typing import Any

from llamina.server.errors import ApiError
from llamina.server.ids import new_id
from llamina.server.store import Kept
from llamina.server.store.store import ANY, made

log = logging.getLogger("llamina.server")
KIND = "file"
DAY = 86400
SWEEP_EVERY = 600.0  # seconds
LEFTOVER_AFTER = 3600  # seconds after which contents without an object are nobody's: an upload may still add one
READING = ("validating", "in_progress", "finalizing", "cancelling")  # states of a batch that needs its input


def file_id() -> str:
    return new_id("file-")


def new_file(id: str, owner: str, filename: str, purpose: str, size: int, expires_at: int | None) -> Kept:
    """The object of a file whose contents are on disk already. Its purpose is its status: lists choose by it."""
    body = {"filename": filename, "bytes": size, "expires_at": expires_at}
    return made(KIND, id, body, owner=owner, status=purpose)


async def find_file(server: Any, id: str, owner: str = ANY) -> Kept:
    """A file that this owner may see. Raises ApiError if there is none, or if it has expired."""
    kept: Kept | None = await server.store.get(KIND, id, owner)
    if kept is None or expired(kept):
        raise ApiError(404, f"there is no file {id!r}", "not_found_error", param="file_id", code="file_not_found")
    return kept


def expired(kept: Kept) -> bool:
    at = kept.body["expires_at"]
    return at is not None and at <= time.time()


async def delete_file(server: Any, id: str, owner: str) -> None:
    """Delete a file. Raises ApiError if there is none, or if a batch reads it."""
    await find_file(server, id, owner)
    if id in await _being_read(server):
        message = f"a batch reads {id!r}: cancel it, or wait for its end"
        raise ApiError(409, message, "conflict_error", param="file_id", code="file_in_use")
    await server.store.delete(KIND, id, owner)
    await server.store.contents.delete(id)


async def _being_read(server: Any) -> set[str]:
    return {batch.body["input_file_id"] for batch in await server.store.all("batch", status=READING)}


async def sweep(server: Any) -> None:
    """Delete files that have expired, and contents without an object, which a crash in an upload leaves."""
    store, read = server.store, await _being_read(server)
    async for kept in store.each(KIND):
        if expired(kept) and kept.id not in read:
            await store.delete(KIND, kept.id)
            await store.contents.delete(kept.id)
    before = time.time() - LEFTOVER_AFTER
    names = await asyncio.to_thread(store.contents.names_before, before)
    known = set(await store.ids(KIND)) if names else set()
    for name in names:
        if name not in known:
            await store.contents.delete(name)


async def sweep_always(server: Any) -> None:
    while True:
        try:
            await sweep(server)
        except Exception:  # whatever it is: files that expire later must be deleted, too
            log.exception("files that have expired could not be deleted: tried again in %g seconds", SWEEP_EVERY)
        await asyncio.sleep(SWEEP_EVERY)
