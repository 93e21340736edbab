"""Where one types: several lines, Enter sends."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

MORE = ("ctrl+j", "shift+enter", "alt+enter")


class Composer(TextArea):
    """Enter sends, unless the line ends with a backslash or a fence is open."""

    DEFAULT_CSS = """
    Composer {
        height: auto; max-height: 8; min-height: 3; padding: 0 1;
        border: round $foreground 20%; background: $background;
        &:focus { border: round $primary; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("up", "up", "Edit last")]

    class Sent(Message):
        """A line, or several."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Recalled(Message):
        """The arrow up in an empty field: the last question shall be edited."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key in MORE:
            self.insert("\n")
        elif event.key == "enter" and self.text.endswith("\\"):
            self.action_delete_left()
            self.insert("\n")
        elif event.key == "enter" and self.text.count("```") % 2:
            self.insert("\n")
        elif event.key == "enter":
            if self.text.strip():
                self.post_message(self.Sent(self.text.strip()))
                self.text = ""
        else:
            await super()._on_key(event)
            return
        event.prevent_default()
        event.stop()

    def action_up(self) -> None:
        if self.text:
            self.action_cursor_up()
        else:
            self.post_message(self.Recalled())

    def draft(self, text: str) -> None:
        """Begin with a text, the cursor behind it."""
        self.text = text
        self.move_cursor(self.document.end)
