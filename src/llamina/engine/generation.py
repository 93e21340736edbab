"""One request seen by its caller: an iterator of text."""

import time
from typing import TYPE_CHECKING, Self

from llamina.engine.request import Request
from llamina.engine.result import Completion, Usage

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


class Generation:
    """Iterate over it for text as it comes; `result()` runs to the end and tells everything.

    Several may be read in turns: a step advances all requests, and each keeps its text until it is read.
    """

    def __init__(self, engine: "Engine", request: Request) -> None:
        self.request = request
        self._engine = engine
        self._start = time.perf_counter()
        self._first = self._last = self._start
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
        output.read += 1
        return output.pieces[output.read - 1]

    def _advance(self) -> None:
        before = len(self.request.known)
        try:
            self._engine.step()
        except BaseException:
            self.close()
            raise
        if len(self.request.known) > before:
            self._last = time.perf_counter()
        if self._first == self._start and self.request.generated:
            self._first = self._last = time.perf_counter()

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
        request, tokens = self.request, self._tokens()
        scores = request.scores
        return Completion(
            "".join(request.pieces),
            tokens,
            request.finish_reason or "cancelled",
            self.usage,
            scores.tokens[: len(tokens)] if scores.n is not None else None,
            scores.prompt if scores.n_prompt is not None else None,
        )

    def _tokens(self) -> list[int]:
        """Generated tokens, the one that ended the generation left out."""
        tokens = self.request.generated
        ended = tokens and tokens[-1] in self._engine.tokenizer.eog and not self.request.ignore_eos
        return tokens[:-1] if ended else tokens

    @property
    def usage(self) -> Usage:
        drafting = self.request.drafting
        return Usage(
            len(self.request.prompt),
            len(self.request.generated),
            self._first - self._start,
            self._last - self._first,
            self.request.cached or 0,
            drafting.drafted,
            drafting.accepted,
            drafting.off,
        )
