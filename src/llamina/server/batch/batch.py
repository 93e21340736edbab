"""A batch as an object: made, found, cancelled, described."""

import re
import time
from typing import Any, Literal, TypedDict

from llamina.server.batch.endpoints import ENDPOINTS
from llamina.server.batch.lines import LineError
from llamina.server.errors import ApiError
from llamina.server.files import DAY, file_id, find_file
from llamina.server.ids import new_id
from llamina.server.store import Kept
from llamina.server.store.store import ANY, made

KIND = "batch"
LINE = "batch_line"  # a part of a batch: the answer to one line of its input
ACTIVE = ("validating", "in_progress", "finalizing", "cancelling")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": DAY}
RETRY_SECONDS = 60  # that a client should wait before it asks again when too much is under way
KEYS, KEY, VALUE = 16, 64, 512  # of metadata: how many, and characters


class LineErrors(TypedDict):
    object: Literal["list"]
    data: list[LineError]


class RequestCounts(TypedDict):
    total: int
    completed: int
    failed: int


class Batch(TypedDict):
    id: str
    object: Literal["batch", "batch_job"]
    endpoint: str
    errors: LineErrors | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


async def new_batch(
    server: Any,
    owner: str,
    *,
    endpoint: str,
    input_file_id: str,
    completion_window: str,
    metadata: dict[str, str] | None,
    output_expires_after: int | None = None,
) -> Kept:
    """A batch that is not kept yet. Raises ApiError for an input that is no file of this owner, and for bad values."""
    try:
        file = await find_file(server, input_file_id, owner)
    except ApiError as error:
        raise ApiError(400, error.message, param="input_file_id", code=error.code) from error
    if file.status != "batch":
        message = f"the purpose of {input_file_id!r} is {file.status!r}: must be batch"
        raise ApiError(400, message, param="input_file_id")
    return await batch_of(
        server, owner, endpoint, input_file_id, file.body["bytes"], completion_window, metadata, output_expires_after
    )


async def batch_of(
    server: Any,
    owner: str,
    endpoint: str,
    input_file_id: str,
    input_bytes: int,
    completion_window: str,
    metadata: dict[str, str] | None,
    output_expires_after: int | None = None,
) -> Kept:
    """A batch of an input that is known to be there. Raises ApiError for bad values, and if too much is under way."""
    if endpoint not in ENDPOINTS:
        raise ApiError(400, f"endpoint is {endpoint!r}: must be one of {', '.join(ENDPOINTS)}", param="endpoint")
    window = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", completion_window)
    if window is None or int(window[1]) * UNITS[window[2]] > 30 * DAY:
        message = f"completion_window is {completion_window!r}: must be 24h, or another time of up to 30d"
        raise ApiError(400, message, param="completion_window")
    _check_metadata(metadata or {})
    pending = sum(batch.body["input_bytes"] for batch in await server.store.all(KIND, status=ACTIVE))
    if pending + input_bytes > (most := server.config.limits.batch_pending_bytes):
        message = f"batches under way have {pending} bytes of input, this one {input_bytes}, and {most} are allowed"
        headers = {"Retry-After": str(RETRY_SECONDS)}
        raise ApiError(429, f"{message}: wait for one to end", "rate_limit_error", code="batches_full", headers=headers)
    body = {
        "endpoint": endpoint,
        "input_file_id": input_file_id,
        "input_bytes": input_bytes,
        "completion_window": completion_window,
        "expires_at": int(time.time()) + int(window[1]) * UNITS[window[2]],
        "metadata": metadata,
        "output_expires_after": output_expires_after,
        "server": server.instance.id,  # the process that works for it
        "files": [file_id(), file_id()],  # chosen now, so that writing them again after a crash makes no others
    }
    return made(KIND, new_id("batch_"), body, owner=owner, status="validating")


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > KEYS:
        raise ApiError(400, f"metadata has {len(metadata)} keys: {KEYS} are allowed", param="metadata")
    for key, value in metadata.items():
        if len(key) > KEY or len(value) > VALUE:
            message = (
                f"metadata[{key[:KEY]!r}] is too long: {KEY} characters of a key and {VALUE} of a value are allowed"
            )
            raise ApiError(400, message, param="metadata")


async def find_batch(server: Any, id: str, owner: str = ANY) -> Kept:
    """A batch of this owner. Raises ApiError if there is none."""
    kept: Kept | None = await server.store.get(KIND, id, owner)
    if kept is None:
        raise ApiError(404, f"there is no batch {id!r}", "not_found_error", param="batch_id", code="batch_not_found")
    return kept


async def cancel_batch(server: Any, id: str, owner: str) -> bool:
    """Let a batch be cancelled; whether that is new. Raises ApiError if it has ended, or is about to."""
    while True:
        batch = await find_batch(server, id, owner)
        if batch.status in ("cancelling", "cancelled"):
            return False
        if batch.status not in ("validating", "in_progress"):
            message = f"the batch is {batch.status}: it cannot be cancelled any more"
            raise ApiError(409, message, "conflict_error", code="batch_not_cancellable")
        if batch.body["server"] != server.instance.id and server.instance.alive(batch.body["server"]):
            message = "another server with the same data folder runs the batch: cancel it there"
            raise ApiError(409, message, "conflict_error", code="batch_not_cancellable")
        body = batch.body | {"cancelling_at": int(time.time())}
        if await server.store.change(KIND, id, body=body, status="cancelling", if_status=(batch.status,)):
            return True


async def described(server: Any, id: str, owner: str) -> Batch:
    """A `batch` object. Raises ApiError if there is none of this owner."""
    # lines first: when a batch ends they go, and its own counts come
    counts = await server.store.counts(LINE, parent=id)
    batch = await find_batch(server, id, owner)
    return as_object(batch, counts)


def as_object(batch: Kept, counts: dict[str, int]) -> Batch:
    body = batch.body
    errors = body.get("errors")
    counts = body.get("counts") or counts
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": body["endpoint"],
        "errors": None if errors is None else {"object": "list", "data": errors},
        "input_file_id": body["input_file_id"],
        "completion_window": body["completion_window"],
        "status": batch.status,
        "output_file_id": body.get("output_file_id"),
        "error_file_id": body.get("error_file_id"),
        "created_at": batch.created,
        "expires_at": body["expires_at"],
        "in_progress_at": body.get("in_progress_at"),
        "finalizing_at": body.get("finalizing_at"),
        "completed_at": body.get("completed_at"),
        "failed_at": body.get("failed_at"),
        "expired_at": body.get("expired_at"),
        "cancelling_at": body.get("cancelling_at"),
        "cancelled_at": body.get("cancelled_at"),
        "request_counts": {
            "total": body.get("total", 0),
            "completed": counts.get("completed", 0),
            "failed": counts.get("failed", 0),
        },
        "metadata": body["metadata"],
    }
