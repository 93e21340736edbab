"""Models on their way here, with how far they are."""

from typing import Any

from llamina.errors import LlaminaError
from llamina.server.admin.schema import PullState
from llamina.server.errors import ApiError
from llamina.server.ollama.manage import Pull, know


class Pulls:
    """Downloads by the ids that their models will have. One that failed stays, with its error, until it is repeated."""

    def __init__(self) -> None:
        self._progress: dict[str, PullState] = {}

    def described(self) -> list[PullState]:
        return list(self._progress.values())

    def begin(self, server: Any, name: str, id: str) -> PullState:
        """Start a download as a job. Raises ApiError if it is under way."""
        job = f"pull {id}"
        if server.jobs.running(job):
            raise ApiError(409, f"{id!r} is being pulled: wait for it", "conflict_error", param="id")
        found: PullState = {"id": id, "model": name, "status": "pulling", "error": None}
        self._progress[id] = found
        server.jobs.start(job, self._pull(server, name, id))
        return found

    async def _pull(self, server: Any, name: str, id: str) -> None:
        progress = self._progress[id]
        task = Pull(name)
        try:
            async for line in task:
                progress |= {"total": line.get("total"), "completed": line.get("completed")}
        except LlaminaError as error:
            progress |= {"status": "failed", "error": str(error)}
            return
        del self._progress[id]
        await know(server, id, task.path)
