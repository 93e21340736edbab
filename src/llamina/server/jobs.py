"""Work that goes on without its request: batches, background responses, runs."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from llamina.server.caller import CALLER, CLIENT_SCOPES, SCOPES, TIMEOUT, Caller
from llamina.server.mistake import where

log = logging.getLogger("llamina.server")
T = TypeVar("T")


class Jobs:
    """Tasks by the id of the object that they work for."""

    def __init__(self, share_prefixes: bool = False) -> None:
        self._share = share_prefixes
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._states: dict[str, Any] = {}
        self._steps: set[asyncio.Task[Any]] = set()

    async def whole(self, step: Coroutine[Any, Any, T]) -> T:
        """What a step returns, which is done to its end even if the client that waits for it leaves.

        For what is kept first and worked on then: half of it would wait for the next start of the server.
        """
        task = asyncio.get_running_loop().create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return await asyncio.shield(task)

    def start(self, id: str, work: Coroutine[Any, Any, None], state: Any = None, owner: str | None = None) -> None:
        """Let `work` run until it is done or cancelled. Its own errors are for it to keep; others go to the log.

        `state` is what others may see of it meanwhile. `owner` is whom it is for; by default the caller of now.
        """
        task = asyncio.get_running_loop().create_task(self._run(work, owner), name=id)
        self._tasks[id], self._states[id] = task, state
        task.add_done_callback(lambda _: self._forget(id, task))

    def _forget(self, id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(id) is task:  # else another was started for the object meanwhile
            del self._tasks[id], self._states[id]

    def state(self, id: str) -> Any:
        """What a running job was started with for others to see, or None."""
        return self._states.get(id)

    async def _run(self, work: Coroutine[Any, Any, None], owner: str | None) -> None:
        if owner is not None:
            # the request was checked when it came; a key's scopes are not known any more
            CALLER.set(Caller(owner, CLIENT_SCOPES if owner else SCOPES, "" if self._share else owner))
        TIMEOUT.set(None)  # that of the request that started it
        try:
            await work
        except Exception as error:
            log.error("a job failed: %s", where(error))

    def running(self, id: str) -> bool:
        return id in self._tasks

    async def cancel(self, id: str) -> bool:
        """End a job, and wait for its end; whether it ran."""
        task = self._tasks.get(id)
        if task is None:
            return False
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.gather(task, return_exceptions=True))
        return True

    async def close(self) -> None:
        """Interrupt all of them: what they have kept lets them go on at the next start."""
        await asyncio.gather(*self._steps, return_exceptions=True)
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
