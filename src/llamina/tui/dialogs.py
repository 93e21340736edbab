"""Small questions in front of everything else: a text, a yes or no, the list of keys."""

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

STYLE = """
{name} {{
    align: center middle; background: $background 60%;
    & > * {{
        width: 68; max-width: 90%; height: auto; max-height: 90%; padding: 1 2;
        border: round $primary; background: $surface;
    }}
}}
"""


class Ask(ModalScreen[str | None]):
    """A text; None if it is given up."""

    DEFAULT_CSS = STYLE.format(name="Ask")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, text: str = "") -> None:
        super().__init__()
        self._question, self._text = question, text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Input(self._text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Sure(ModalScreen[bool]):
    """Yes or no."""

    DEFAULT_CSS = STYLE.format(name="Sure")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,enter,ctrl+c", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Static("[b]y[/] yes   [b]n[/] no", classes="muted")


class Keys(ModalScreen[None]):
    """All keys of the screen behind it."""

    DEFAULT_CSS = STYLE.format(name="Keys")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,f1,ctrl+c", "dismiss(None)", "Back")]

    def __init__(self, keys: dict[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        table = Table.grid(padding=(0, 2, 0, 0))
        for key, text in self._keys.items():
            table.add_row(Text(key, style="bold"), Text(text))
        with VerticalScroll():
            yield Static(table)
