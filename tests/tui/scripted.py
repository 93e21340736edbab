"""A partner that says what it is told to, word by word when it is let."""

import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llamina.engine.request import request_of
from llamina.errors import LlaminaError
from llamina.repl import transcript
from llamina.repl.library import Library
from llamina.repl.partner import Figures, Message, Piece
from llamina.repl.server_events import Snapshot
from llamina.tui.chat import Chat


class Words:
    """An answer. With a gate, it waits there before each word."""

    def __init__(self, message: dict[str, Any], gate: threading.Semaphore | None, reasoning: str) -> None:
        self._words = str(message["content"]).split(" ")
        self._message, self._gate, self._reasoning = message, gate, reasoning
        self._said: list[str] = []
        self._stopped = threading.Event()

    def __iter__(self) -> Iterator[Piece]:
        if self._reasoning:
            yield Piece(reasoning=self._reasoning)
        for word in self._words:
            while self._gate is not None and not self._gate.acquire(timeout=0.02) and not self._stopped.is_set():
                pass
            if self._stopped.is_set():
                return
            self._said.append(word)
            yield Piece(text=word if len(self._said) == 1 else f" {word}")

    def stop(self) -> None:
        self._stopped.set()

    def message(self) -> dict[str, Any]:
        return {**self._message, "content": " ".join(self._said)}

    def figures(self) -> Figures:
        return Figures(10, 4, len(self._said), 0.5, 7.0, "cancelled" if self._stopped.is_set() else "stop")


class Scripted:
    """A partner with answers in stock; it remembers what it was asked."""

    name, context = "scripted", 100

    def __init__(self, *answers: str | dict[str, Any] | Exception, gate: threading.Semaphore | None = None) -> None:
        self.answers, self.gate, self.reasoning = list(answers), gate, ""
        self.asked: list[list[Message]] = []
        self.closed = False

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Words:
        self.asked.append(list(messages))
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        message = {"role": "assistant", "content": said} if isinstance(said, str) else said
        return Words(message, self.gate, self.reasoning)

    def check(self, options: Mapping[str, Any]) -> None:
        request_of([0], {name: value for name, value in options.items() if value is not None})

    def models(self) -> list[str]:
        return ["scripted", "other"]

    def use(self, name: str) -> None:
        self.name = name

    def stats(self) -> dict[str, str]:
        return {"model": self.name}

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        raise LlaminaError("nobody counts here")
        yield

    def save(self, path: Path, messages: Sequence[Message]) -> str:
        transcript.write(path, messages)
        return "all"

    def load(self, path: Path) -> list[dict[str, Any]]:
        return transcript.read(path) or []

    def close(self) -> None:
        self.closed = True


def chat_of(partner: Scripted, folder: Path, **options: Any) -> Chat:
    return Chat(lambda progress: partner, Library(folder), **options)
