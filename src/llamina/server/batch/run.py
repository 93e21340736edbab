"""What a batch does, state by state. Each ends with a change in the store, so another process can go on from there."""

import asyncio
import logging
import time
from typing import Any

import msgspec
import sqlalchemy as sa

from llamina.server.batch.batch import ACTIVE, KIND, LINE
from llamina.server.batch.execute import Execution, done_lines
from llamina.server.batch.lines import LineError, check, decode, lines
from llamina.server.files import new_file
from llamina.server.ids import new_id
from llamina.server.mistake import where
from llamina.server.store import Kept

log = logging.getLogger("llamina.server")
RETRY = 30.0  # seconds until what a full disk or a lost database prevented is tried again
UNDONE = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed, as the batch was cancelled."),
}


async def resume_all(server: Any) -> None:
    """Go on with the batches of processes that are gone."""
    for batch in await server.store.all(KIND, status=ACTIVE):
        if not server.instance.alive(batch.body["server"]):
            await server.store.change(KIND, batch.id, body=batch.body | {"server": server.instance.id})
            server.jobs.start(batch.id, run(server, batch.id), owner=batch.owner)


async def run(server: Any, id: str) -> None:
    """Bring a batch to its end, from whatever state it is in."""
    while True:
        try:
            batch = await server.store.get(KIND, id)
            if batch is None or batch.status not in STEPS:
                return
            await _step(server, batch)
        except (OSError, sa.exc.SQLAlchemyError):
            log.exception("batch %s: tried again in %g seconds", id, RETRY)
            await asyncio.sleep(RETRY)


async def _step(server: Any, batch: Kept) -> None:
    """Bring a batch to its next state, or to its end. Raises OSError or SQLAlchemyError for what may work later."""
    try:
        await STEPS[batch.status](server, batch)
    except FileNotFoundError as error:
        log.error("batch %s: %s", batch.id, error)
        await _move(server, batch, "failed", {"errors": [_error("file_not_found", "the input file is gone")]})
    except (OSError, sa.exc.SQLAlchemyError):
        raise
    except Exception as error:  # whatever it is: its owner must be told that the batch has ended
        log.error("batch %s: a mistake of ours: %s", batch.id, where(error))
        await _move(server, batch, "failed", {"errors": [_error("server_error", "the server made a mistake")]})


def _error(code: str, message: str) -> LineError:
    return {"code": code, "message": message, "line": None, "param": None}


async def _move(server: Any, batch: Kept, status: str, news: dict[str, Any], drop: str | None = None) -> None:
    """Into another state, unless the batch was cancelled meanwhile."""
    body = batch.body | news | {f"{status}_at": int(time.time())}
    await server.store.change(KIND, batch.id, body=body, status=status, if_status=(batch.status,), drop=drop)


async def _validate(server: Any, batch: Kept) -> None:
    path = server.store.contents.path(batch.body["input_file_id"])
    found = await asyncio.to_thread(check, path, batch.body["endpoint"], server.config.limits)
    if found.errors:
        await _move(server, batch, "failed", {"errors": found.errors})
    else:
        await _move(server, batch, "in_progress", {"total": found.total})


async def _execute(server: Any, batch: Kept) -> None:
    timeout = asyncio.timeout(max(batch.body["expires_at"] - time.time(), 0))
    try:
        async with timeout:
            await Execution(server, batch).run()
    except TimeoutError:
        if not timeout.expired():
            raise
    await _move(server, batch, "finalizing", {"ending": "expired" if timeout.expired() else "completed"})


async def _finalize(server: Any, batch: Kept) -> None:
    """Write the two files: every request is in one of them. Done again after a crash, it makes the same ones."""
    ending = batch.body["ending"] if batch.status == "finalizing" else "cancelled"
    store = server.store
    output, errors = batch.body["files"]
    counts = {"completed": 0, "failed": 0}
    with store.contents.write(output) as answered, store.contents.write(errors) as failed:
        async for line in store.each(LINE, parent=batch.id):
            counts[line.status] += 1
            await (answered if line.status == "completed" else failed).write(msgspec.json.encode(line.body) + b"\n")
        if ending in UNDONE:
            counts["failed"] += await _write_undone(server, batch, ending, failed)
        assert sum(counts.values()) == batch.body.get("total", 0), "every request is in one of the files"
        news: dict[str, Any] = {"counts": counts}
        seconds = batch.body["output_expires_after"]
        until = None if seconds is None else int(time.time()) + seconds
        for state, id, file in (("completed", output, answered), ("failed", errors, failed)):
            if counts[state]:
                await file.finish()
                name = f"{batch.id}_{'output' if state == 'completed' else 'error'}.jsonl"
                await store.insert_once([new_file(id, batch.owner, name, "batch_output", file.size, until)])
                news["output_file_id" if state == "completed" else "error_file_id"] = id
    await _move(server, batch, ending, news, drop=LINE)


async def _write_undone(server: Any, batch: Kept, ending: str, file: Any) -> int:
    """Write an error for each request that was not answered; how many."""
    if "total" not in batch.body:  # it was not even validated
        return 0
    done = await done_lines(server, batch)
    code, message = UNDONE[ending]
    path, most = server.store.contents.path(batch.body["input_file_id"]), server.config.limits.body_bytes
    rest, n = lines(path, most, done), 0
    while (item := await asyncio.to_thread(next, rest, None)) is not None:
        line = {
            "id": new_id("batch_req_"),
            "custom_id": decode(item[1]).custom_id,
            "response": None,
            "error": {"code": code, "message": message},
        }
        await file.write(msgspec.json.encode(line) + b"\n")
        n += 1
    return n


STEPS = {"validating": _validate, "in_progress": _execute, "finalizing": _finalize, "cancelling": _finalize}
