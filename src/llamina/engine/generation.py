"""One request seen by its caller: an iterator of text."""

from typing import TYPE_CHECKING, Self

from llamina.engine.request import Request
from llamina.engine.result import Completion, Usage, completion_of, usage_of

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


class Generation:
    """Iterate over it for text as it comes; `result()` runs to the end and tells everything.

    Several may be read in turns: a step advances all requests, and each keeps its text until it is read.
    """

    def __init__(self, engine: "Engine", request: Request) -> None:
        self.request = request
        self._engine = engine
        self._stopped = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        output = self.request.output
        while output.read == len(output.pieces):
            if self.request.finish_reason is not None or self._stopped:
                self.close()
                if self.request.error is not None:
                    raise self.request.error
                raise StopIteration
            self._advance()
        return output.take()

    def _advance(self) -> None:
        try:
            self._engine.step()
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """End after the step under way; may be called from a signal handler or another thread."""
        self._stopped = True

    def close(self) -> None:
        """Stop here: nothing more is computed for it, and its pages are free."""
        self._engine.cancel(self.request)

    def __del__(self) -> None:
        self.close()  # left early: stop working on it

    def result(self) -> Completion:
        """Everything, after running what is left of it."""
        for _ in self:
            pass
        return completion_of(self.request)

    @property
    def usage(self) -> Usage:
        return usage_of(self.request)
