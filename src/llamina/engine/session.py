"""A conversation that can be put away and taken up again."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamina.engine.generation import Generation
from llamina.engine.shelf import put_away, take_up
from llamina.engine.snapshot import Snapshot
from llamina.errors import RequestError, SnapshotError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


class Session:
    """Messages, and the model's answers to them. A saved one goes on without computing what was said before."""

    def __init__(self, engine: "Engine", messages: Sequence[dict[str, Any]] = ()) -> None:
        self._engine = engine
        self._messages = list(messages)
        self._turn: Generation | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was said so far, the answer under way included."""
        answer = [{"role": "assistant", "content": "".join(self._turn.request.pieces)}] if self._turn else []
        return [*self._messages, *answer]

    def ask(self, text: str, **options: Any) -> Generation:
        """The answer to a message, as it comes; options are those of `Engine.stream`."""
        messages = [*self.messages, {"role": "user", "content": text}]
        prompt = self._engine.chat_tokens(self._engine.render_chat(messages))
        turn = self._engine.stream(prompt, **options)
        self._messages, self._turn = messages, turn
        return turn

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation and what is computed of it; a file that is there is replaced as a whole."""
        if self._turn is None:
            raise RequestError("nothing was asked yet: there is nothing to save")
        snapshot = put_away(self._engine, self._turn.request)
        data = Snapshot(snapshot.header | {"messages": self.messages}, snapshot.states).pack()
        part = Path(f"{os.fspath(path)}.part")
        try:
            part.write_bytes(data)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise SnapshotError(f"{os.fspath(path)} cannot be written: {error.strerror}") from error

    @classmethod
    def load(cls, engine: "Engine", path: str | os.PathLike[str]) -> "Session":
        """The conversation that was saved there."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise SnapshotError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error
        snapshot = Snapshot.unpack(data)
        if "messages" not in snapshot.header:
            raise SnapshotError(f"{os.fspath(path)} holds a request, not a conversation: give it to Engine.resume")
        engine.cancel(take_up(engine, snapshot))
        return cls(engine, snapshot.header["messages"])
