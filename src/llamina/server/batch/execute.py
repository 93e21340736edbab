"""Answering the lines of a batch, several at a time: each answer is kept once, whatever happens in between."""

import asyncio
from typing import Any

from llamina.server.batch.batch import LINE
from llamina.server.batch.endpoints import ENDPOINTS, From
from llamina.server.batch.lines import decode, lines
from llamina.server.errors import ApiError, api_error, openai_shape
from llamina.server.http import parse
from llamina.server.ids import new_id
from llamina.server.store import Kept
from llamina.server.store.store import made

PRIORITY = -100  # thousands of later requests of the live endpoints go first, and take the seats of running lines
LOSSES = 3  # times that a line may lose its model before it is the line's fault


async def done_lines(server: Any, batch: Kept) -> frozenset[int]:
    """The numbers of the lines that are answered."""
    ids = await server.store.ids(LINE, parent=batch.id)
    return frozenset(int(id.rpartition(":")[2]) for id in ids)


class Execution:
    """`run` returns when every line is answered. Only the lines under way are held in memory."""

    def __init__(self, server: Any, batch: Kept) -> None:
        self._server, self._batch = server, batch
        self._endpoint = ENDPOINTS[batch.body["endpoint"]]
        self._reading, self._writing = asyncio.Lock(), asyncio.Lock()
        self._fresh: list[Kept] = []

    async def run(self) -> None:
        server, batch = self._server, self._batch
        done = await done_lines(server, batch)
        path = server.store.contents.path(batch.body["input_file_id"])
        self._lines = lines(path, server.config.limits.body_bytes, done)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(server.config.batch_concurrency):
                    group.create_task(self._work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _work(self) -> None:
        while True:
            async with self._server.batch_slots:  # which all batches share, so lines in memory are few
                async with self._reading:
                    item = await asyncio.to_thread(next, self._lines, None)
                if item is None:
                    return
                kept = await self._answered(*item)
            await self._keep(kept)

    async def _answered(self, number: int, line: bytes) -> Kept:
        """The answer to a line, as the line of a file."""
        request = decode(line)
        id = f"{self._batch.id}:{number:09d}"
        status, body = await self._answer(bytes(request.body), From(self._batch.owner, id))
        response = {"status_code": status, "request_id": new_id("req_"), "body": body}
        kept = {"id": new_id("batch_req_"), "custom_id": request.custom_id, "response": response, "error": None}
        state = "completed" if status == 200 else "failed"
        return made(LINE, id, kept, owner=self._batch.owner, parent=self._batch.id, status=state)

    async def _answer(self, body: bytes, origin: From) -> tuple[int, Any]:
        """Status and body, as the live endpoint would give them; where that says to come back later, we do."""
        losses = 0
        while True:
            try:
                request = parse(body, self._endpoint.request, self._server.config.limits.depth)
                if getattr(request, "stream", None):
                    raise ApiError(400, "stream is true: a batch has whole answers, leave it out", param="stream")
                return 200, await self._endpoint.answer(self._server, request, origin, priority=PRIORITY)
            except Exception as error:
                found = api_error(error)
                losses += found.code == "model_lost"
                if found.status != 503 or losses == LOSSES:
                    return found.status, openai_shape(found)
                await asyncio.sleep(float(found.headers.get("Retry-After", 1)))

    async def _keep(self, line: Kept) -> None:
        """Return when the line is on disk. Lines that come while others are written share a transaction."""
        self._fresh.append(line)
        async with self._writing:
            if self._fresh:
                fresh, self._fresh = self._fresh, []
                await self._server.store.insert_once(fresh)
