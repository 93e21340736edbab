"""The plots at the right of a conversation: speed, KV cache and batch of the model that answers."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from llamina.repl.server_events import Snapshot
from llamina.tui.history import History, Point
from llamina.tui.plot import Curve, Plot, few, percent

CURVES = (
    Curve("tokens/s", lambda point: point.generated, few),
    Curve("KV cache", lambda point: point.pages, percent, lambda point: point.kept, "kept"),
    Curve("batch", lambda point: point.batch, few),
)


class Speeds(VerticalScroll):
    """Takes a snapshot each second; without any, what arrives here is all that is known."""

    DEFAULT_CSS = """
    Speeds {
        width: 34; padding: 0 1; border-left: solid $foreground 20%; background: $surface;
        & > Plot { height: 1fr; min-height: 5; max-height: 12; }
        & > Static { color: $text-muted; height: auto; padding: 0 1; }
    }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._history = History()
        self._plots = [Plot(curve) for curve in CURVES]
        self._note = Static("", markup=False)

    def compose(self) -> ComposeResult:
        yield from self._plots
        yield self._note

    def take(self, snapshot: Snapshot, model: str) -> None:
        """Add the figures of a model."""
        self._history.add(snapshot, model)
        self._draw("")

    def guess(self, tokens: float, why: str) -> None:
        """Add what arrived in a second, where nobody tells more."""
        self._history.points.append(Point(generated=tokens))
        self._draw(why)

    def _draw(self, note: str) -> None:
        for plot in self._plots:
            plot.draw(self._history.points)
        self._note.update(note)
