"""One request seen by its caller: an iterator of text."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .request import Request
from .result import Completion, Usage

if TYPE_CHECKING:
    from .engine import Engine


class Generation:
    """Iterate over it for text as it comes; `result()` runs to the end and tells everything."""

    def __init__(self, engine: "Engine", request: Request) -> None:
        self.request = request
        self._engine = engine
        self._pieces: list[str] = []
        self._start = time.perf_counter()
        self._first = self._last = self._start
        self._source = self._run()

    def __iter__(self) -> Iterator[str]:
        return self._source

    def __next__(self) -> str:
        return next(self._source)

    def _run(self) -> Iterator[str]:
        try:
            while self.request.finish_reason is None:
                text = self._advance()
                if text:
                    self._pieces.append(text)
                    yield text
        finally:
            self._engine.cancel(self.request)  # left early: stop working on it

    def _advance(self) -> str:
        text = ""
        for event in self._engine.step():
            if event.request is self.request and event.token is not None:
                text += event.text
                self._last = time.perf_counter()
                if len(self.request.generated) == 1:
                    self._first = self._last
        return text

    def close(self) -> None:
        """Stop here."""
        self._source.close()  # type: ignore[attr-defined]

    def result(self) -> Completion:
        """Everything, after running what is left of it."""
        for _ in self._source:
            pass
        reason = self.request.finish_reason or "cancelled"
        return Completion("".join(self._pieces), self._tokens(), reason, self.usage)

    def _tokens(self) -> list[int]:
        """Generated tokens, the one that ended the generation left out."""
        tokens = self.request.generated
        return tokens[:-1] if tokens and tokens[-1] in self._engine.tokenizer.eog else tokens

    @property
    def usage(self) -> Usage:
        return Usage(
            len(self.request.prompt), len(self.request.generated), self._first - self._start, self._last - self._first
        )
