"""The application around its screens: themes, the list of keys, the way out."""

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from llamina.tui.dialogs import Keys

DARK = Theme(
    "llamina-dark", primary="#5cc8ba", secondary="#8fbdf7", accent="#f0ae79", warning="#f0ae79", error="#ff8f85",
    success="#93d5a4", foreground="#e6e8eb", background="#15171a", surface="#1b1e22", panel="#202429", dark=True,
)  # fmt: skip
LIGHT = Theme(
    "llamina-light", primary="#0f766e", secondary="#1459b3", accent="#a3480b", warning="#a3480b", error="#b3261e",
    success="#1a6e3a", foreground="#20242a", background="#faf9f7", surface="#f3f1ed", panel="#ebe8e1", dark=False,
)  # fmt: skip


class Terminal(App[None]):
    """Shows one screen, and what that one puts in front of itself."""

    TITLE = "llamina"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    * {
        scrollbar-size-vertical: 1; scrollbar-color: $foreground 20%; scrollbar-color-hover: $primary;
        scrollbar-background: $background; scrollbar-background-hover: $background;
        scrollbar-color-active: $primary; scrollbar-background-active: $background;
    }
    .muted { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "keys", "Keys", priority=True),
        Binding("ctrl+l", "theme", "Light or dark", show=False, priority=True),
        Binding("ctrl+q", "quit", "Quit", priority=True),
    ]

    def __init__(self, first: Callable[[], Screen[Any]], light: bool = False) -> None:
        super().__init__()
        self._first, self._light = first, light

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = LIGHT.name if self._light else DARK.name
        self.push_screen(self._first())

    def action_theme(self) -> None:
        self.theme = DARK.name if self.theme == LIGHT.name else LIGHT.name

    def action_keys(self) -> None:
        """What every key does that has a meaning here."""
        if isinstance(self.screen, Keys):
            return
        found: dict[str, str] = dict(getattr(self.screen, "KEYS", {}))
        self.push_screen(Keys(found | {"Ctrl-L": "light or dark", "Ctrl-Q": "leave"}))
