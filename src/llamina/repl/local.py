"""A model of this process as a partner. Conversations are saved with their KV cache."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llamina import hub
from llamina.engine import ChatDelta, Engine, Session, Turn
from llamina.engine.request import request_of
from llamina.engine.status import sequences, stats
from llamina.engine.tasks.chat import SETTINGS
from llamina.repl import transcript
from llamina.repl.partner import Figures, Message, Piece
from llamina.repl.server_events import Snapshot

Load = Callable[[str], Engine]
EVERY = 1.0  # seconds between snapshots


class LocalReply:
    """A turn, piece by piece."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __iter__(self) -> Iterator[Piece]:
        for delta in self._turn:
            assert isinstance(delta, ChatDelta)
            if delta.text or delta.reasoning:
                yield Piece(delta.text, delta.reasoning)

    def stop(self) -> None:
        self._turn.stop()

    def message(self) -> dict[str, Any]:
        return self._turn.message()

    def figures(self) -> Figures:
        done, usage = self._turn.result(), self._turn.usage
        return Figures(
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            usage.prompt_seconds,
            usage.completion_rate if usage.completion_tokens > 1 else None,
            done.finish_reason,
        )


class LocalPartner:
    """`load` makes an engine of a model's name or file; it shows its own progress."""

    def __init__(self, model: str, load: Load) -> None:
        self._load = load
        self._engine = load(model)
        self.name = _shown(model)
        self._session: Session | None = None

    @property
    def context(self) -> int:
        return self._engine.context

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> LocalReply:
        *before, last = messages
        if last["role"] == "user" and isinstance(last["content"], str):  # as a session, which can be saved
            self._session = Session(self._engine, before)
            return LocalReply(self._session.ask(last["content"], **options))
        self._session = None
        return LocalReply(self._engine.stream_chat(list(messages), **options))

    def check(self, options: Mapping[str, Any]) -> None:
        request_of([0], {name: value for name, value in options.items() if name not in SETTINGS})

    def models(self) -> list[str]:
        return sorted({*hub.names(), *hub.CATALOGUE})

    def use(self, name: str) -> None:
        engine = self._load(name)
        self._engine.close()
        self._engine, self.name, self._session = engine, _shown(name), None

    def stats(self) -> dict[str, str]:
        memory, pages, done = self._engine.memory(), self._engine.core.pages, self._engine.metrics
        return {
            "model": f"{self.name} ({self._engine.runner.model.config.architecture})",
            "context": f"{self.context} tokens",
            "weights": f"{memory.weights / 1e6:.0f} MB",
            "KV cache": f"{memory.cache / 1e6:.0f} MB, {pages.total - pages.free} of {pages.total} pages in use",
            "tokens so far": f"{done.prompt_tokens} of prompts, {done.generated_tokens} of answers",
        }

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        while True:
            yield await asyncio.to_thread(self._snapshot)
            await asyncio.sleep(EVERY)

    def _snapshot(self) -> Snapshot:
        engine = self._engine
        told = {"status": "ready", "stats": stats(engine), "sequences": sequences(engine)}
        return {"time": time.time(), "models": {self.name: told | {"max_sequences": engine.runner.budget.sequences}}}

    def save(self, path: Path, messages: Sequence[Message]) -> str:
        if self._session is not None and self._session.messages == list(messages):
            self._session.save(path)
            return f"{len(messages)} messages with their KV cache"
        transcript.write(path, messages)
        return f"{len(messages)} messages"

    def load(self, path: Path) -> list[dict[str, Any]]:
        found = transcript.read(path)
        return Session.load(self._engine, path).messages if found is None else found

    def close(self) -> None:
        self._engine.close()


def _shown(model: str) -> str:
    """A name as it is; of a file, its own."""
    return Path(model).stem if model.endswith(".gguf") else model
