"""Reading what people type: history, several lines, completion of commands, names and files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from llamina.repl.commands import COMMANDS

if TYPE_CHECKING:
    from llamina.repl.desk import Desk

PROMPT = "\x1b[1;36m>\x1b[0m "


class Reader(Protocol):
    """`read` returns what was typed. Raises EOFError at the end, KeyboardInterrupt for Ctrl-C."""

    def read(self, draft: str = "") -> str: ...


class Keyboard:
    """A terminal."""

    def __init__(self, desk: "Desk", history: Path | None) -> None:
        kept: History = InMemoryHistory()
        if history is not None:
            history.parent.mkdir(parents=True, exist_ok=True)
            kept = FileHistory(str(history))
        self._session: PromptSession[str] = PromptSession(
            history=kept, completer=Commands(desk), complete_while_typing=False, key_bindings=_keys(), multiline=True
        )

    def read(self, draft: str = "") -> str:
        return self._session.prompt(ANSI(PROMPT), default=draft, prompt_continuation="  ")


class Pipe:
    """Lines of a file or a pipe: each is a message."""

    def read(self, draft: str = "") -> str:
        if draft:
            return draft
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")


def _keys() -> KeyBindings:
    """Enter sends, unless the line ends with a backslash or a fence is open; Alt-Enter goes on."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif buffer.text.count("```") % 2:
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class Commands(Completer):
    """Names of commands, and then what the command takes."""

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/"):
            return
        name, space, rest = text[1:].partition(" ")
        if not space:
            for found in COMMANDS.values():
                if found.name.startswith(name):
                    yield Completion(found.name, -len(name), display_meta=found.help)
            return
        command = COMMANDS.get(name)
        if command is None:
            return
        if command.takes_path:
            yield from self._paths.get_completions(Document(rest, len(rest)), complete_event)
        elif command.complete is not None:
            for word in command.complete(self._desk):
                if word.startswith(rest):
                    yield Completion(word, -len(rest))
