"""The conversations at the left: a search field and a list, the latest first."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from llamina.repl.library import Kept
from llamina.repl.visible import visible


class Titles(OptionList):
    """The list. Its keys are shown in the footer while it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "change('rename')", "Rename"),
        Binding("d,delete", "change('delete')", "Delete"),
    ]

    def on_focus(self) -> None:
        """Enter opens something at once."""
        if self.highlighted is None and self.option_count:
            self.highlighted = 0

    def action_change(self, what: str) -> None:
        if self.highlighted is not None:
            id = self.get_option_at_index(self.highlighted).id
            self.post_message(Shelf.Changed(what, id or ""))


class Shelf(Vertical):
    """Which conversations there are. Whoever holds them is told what is wanted."""

    DEFAULT_CSS = """
    Shelf {
        width: 30; border-right: solid $foreground 20%; background: $surface;
        & > Input { border: round $foreground 20%; background: $surface; &:focus { border: round $primary; } }
        & > Titles, & > Titles:focus {
            height: 1fr; border: none; padding: 0 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis;
        }
    }
    """

    class Changed(Message):
        """`what` shall be done with a conversation: open, rename or delete."""

        def __init__(self, what: str, id: str) -> None:
            super().__init__()
            self.what, self.id = what, id

    class Searched(Message):
        """Only conversations with this text shall be listed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def compose(self) -> ComposeResult:
        yield Input(placeholder="search", id="search")
        yield Titles(id="titles")

    def fill(self, kept: Sequence[Kept], open_id: str, busy: set[str]) -> None:
        """List these; a dot is at those that are being answered."""
        titles = self.query_one(Titles)
        marked = titles.highlighted_option
        wanted = marked.id if marked is not None and titles.has_focus else open_id
        titles.clear_options()
        titles.add_options([_option(each, each.id == open_id, each.id in busy) for each in kept])
        ids = [each.id for each in kept]
        if wanted in ids:
            titles.highlighted = ids.index(wanted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Changed("open", event.option_id or ""))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Searched(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(Titles).focus()


def _option(kept: Kept, is_open: bool, busy: bool) -> Option:
    title = ("● " if busy else "") + visible(kept.shown_title)
    return Option(Content.styled(title, "bold" if is_open else ""), kept.id)
