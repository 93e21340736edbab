"""A conversation that can be saved, with its KV cache, and loaded again."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llamina.engine.snapshot.file import read_file, write_file
from llamina.engine.snapshot.format import Snapshot
from llamina.engine.snapshot.transfer import resume, take_snapshot
from llamina.engine.tasks.chat import Message, Turn, conversation
from llamina.engine.tasks.media import written
from llamina.errors import RequestError, SnapshotError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


class Session:
    """Messages, and the model's answers to them. A saved one goes on without computing again what was said before."""

    def __init__(self, engine: "Engine", messages: Sequence[Message] = ()) -> None:
        self._engine = engine
        self._messages = conversation(messages)
        self._turn: Turn | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was said so far, the answer under way included."""
        return [*self._messages, *([self._turn.message()] if self._turn else [])]

    def ask(self, content: str | Sequence[Any], **options: Any) -> Turn:
        """The answer to a text, or to parts, as it comes; options are those of `Engine.stream_chat`."""
        messages = [*self.messages, *conversation([{"role": "user", "content": content}])]
        turn = self._engine.stream_chat(messages, **options)
        self._messages, self._turn = messages, turn
        return turn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation and its KV cache; a file that is there is replaced as a whole.

        Raises RequestError if nothing was asked yet, SnapshotError if the file cannot be written.
        """
        if self._turn is None:
            raise RequestError("nothing was asked yet: there is nothing to save")
        snapshot = self._engine.stepper.call(take_snapshot, self._engine.core, self._turn.generation.sequence)
        write_file(path, Snapshot(snapshot.header | {"messages": written(self.messages)}, snapshot.states).pack())

    @classmethod
    def load(cls, engine: "Engine", path: str | os.PathLike[str]) -> "Session":
        """The conversation that was saved there. Raises SnapshotError if there is none, or it is another model's."""
        snapshot = Snapshot.unpack(read_file(path))
        if "messages" not in snapshot.header:
            raise SnapshotError(f"{os.fspath(path)} holds a request, not a conversation: give it to Engine.resume")
        engine.stepper.call(_restore, engine, snapshot)
        return cls(engine, snapshot.header["messages"])


def _restore(engine: "Engine", snapshot: Snapshot) -> None:
    """Bring the KV cache back; the prefix tree keeps it for the next question."""
    engine.core.cancel(resume(engine.core, snapshot))
