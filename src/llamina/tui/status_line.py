"""The lines around the talk: who answers, what is going on, how full the context is; how far loading is."""

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import ProgressBar, Static

WIDTH = 12  # cells of the meter


def meter(used: int, context: int | None) -> str:
    """The context as a bar, such as `context ██░░░░░░░░░░ 17 % of 2048`."""
    if not context:
        return f"{used} tokens" if used else ""
    full = min(WIDTH, -(-WIDTH * used // context))
    return f"context {'█' * full}{'░' * (WIDTH - full)} {100 * used / context:.0f} % of {context}"


class StatusLine(Horizontal):
    """One line: a state at the left, the meter of the context at the right."""

    DEFAULT_CSS = """
    StatusLine {
        height: 1; padding: 0 2; color: $text-muted;
        & > #state { width: 1fr; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        & > #context { width: auto; margin-left: 1; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown = ("", "")

    def compose(self) -> ComposeResult:
        yield Static("", id="state", markup=False)
        yield Static("", id="context", markup=False)

    def show(self, state: str, used: int, context: int | None) -> None:
        now = (state, meter(used, context))
        if now != self._shown:  # drawing costs, and this is called many times a second
            self._shown = now
            self.query_one("#state", Static).update(now[0])
            self.query_one("#context", Static).update(now[1])


class Loading(Horizontal):
    """How far the model is. It goes away when that is over."""

    DEFAULT_CSS = """
    Loading {
        height: 1; padding: 0 2; color: $text-muted;
        & > Static { width: auto; max-width: 60%; margin-right: 2; }
        & > ProgressBar { width: 1fr; & Bar { width: 1fr; } }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static("loading", id="loading-what", markup=False)
        yield ProgressBar(show_eta=False)

    def show(self, what: str, done: int, total: int) -> None:
        """A total of 0 is unknown."""
        self.display = True
        self.query_one("#loading-what", Static).update(what)
        self.query_one(ProgressBar).update(total=total or None, progress=done)
