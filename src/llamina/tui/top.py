"""The view of a running server: its models, plots of what they do, and the requests under way."""

import asyncio
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from llamina.errors import LlaminaError
from llamina.repl.server_events import Server, Snapshot
from llamina.tui.history import History
from llamina.tui.plot import Curve, Plot, duration, few, percent

AGAIN = 1.5  # seconds before a lost connection is tried again
CURVES = (
    Curve("tokens/s", lambda p: p.generated, few),
    Curve("first token", lambda p: p.first_median, duration, lambda p: p.first_slow, "95 %"),
    Curve("each token", lambda p: p.each_median, duration, lambda p: p.each_slow, "95 %"),
    Curve("KV cache", lambda p: p.pages, percent, lambda p: p.kept, "kept"),
    Curve("batch", lambda p: p.batch, few),
    Curve("queue", lambda p: p.waiting, few),
)
COLUMNS = ("model", "id", "state", "prompt", "cached", "generated", "age")


class Top(Screen[None]):
    """Listens to the server for as long as it is open."""

    CSS = """
    Top #head { height: auto; padding: 0 1; }
    Top #models {
        height: auto; max-height: 5; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    Top #plots { grid-size: 3 2; grid-rows: 1fr; height: 3fr; min-height: 10; max-height: 20; grid-gutter: 0 1; }
    Top #plots Plot { height: 1fr; min-height: 5; }
    Top DataTable { height: 2fr; min-height: 4; background: $background; margin-top: 1; }
    Top.-short DataTable { margin-top: 0; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012 - Textual's name
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,delete", "cancel", "Cancel request"),
        Binding("m", "model", "Next model"),
        Binding("escape", "leave", "Back"),
        Binding("q,ctrl+c", "leave", "Back", show=False, priority=True),
    ]
    KEYS: ClassVar[dict[str, str]] = {
        "↑ ↓": "choose a request",
        "c": "cancel it; its client is told",
        "m": "plots of the next model, or of all",
        "q, Esc": "back",
    }

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._histories: dict[str | None, History] = {None: History()}  # of all models, and of each
        self._model: str | None = None
        self._last: Snapshot = {"models": {}}
        self._title = Static("", id="head", markup=False)
        self._plots = [Plot(curve) for curve in CURVES]
        self._models = Static("", id="models", markup=False)
        self._table: DataTable[Text] = DataTable(cursor_type="row", zebra_stripes=True)

    def compose(self) -> ComposeResult:
        yield self._title
        with Grid(id="plots"):
            yield from self._plots
        yield self._models
        yield self._table
        yield Footer()

    def on_mount(self) -> None:
        for name in COLUMNS:
            self._table.add_column(name, key=name)
        self._table.focus()
        self._head("connecting …")
        self.run_worker(self._listen(), exclusive=True)

    async def _listen(self) -> None:
        while True:
            try:
                async for snapshot in self._server.snapshots():
                    self._take(snapshot)
                self._head("the stream has ended, trying again", bad=True)
            except LlaminaError as error:
                self._head(str(error), bad=True)
            await asyncio.sleep(AGAIN)

    def _take(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        for id in (None, *snapshot["models"]):
            self._histories.setdefault(id, History()).add(snapshot, id)
        self._show()

    # ---- what is seen ------------------------------------------------------------------------------------

    def _head(self, state: str, bad: bool = False) -> None:
        line = Text.assemble((" llamina top ", "reverse bold"), f" {self._server.url} · ")
        line.append(state, "bold red" if bad else "")
        self._title.update(line)

    def _show(self) -> None:
        found = [sequence for told in self._last["models"].values() for sequence in told.get("sequences", ())]
        running = sum(sequence["state"] == "running" for sequence in found)
        self._head(f"{self._model or 'all models'} · {running} running, {len(found) - running} waiting")
        for plot in self._plots:
            plot.draw(self._histories[self._model].points)
        lines = Text("\n").join(_model_line(id, told) for id, told in self._last["models"].items())
        self._models.update(Content.from_rich_text(lines))
        self._requests()

    def _requests(self) -> None:
        """The rows of the table; the cursor stays at its request."""
        table = self._table
        rows = {
            f"{sequence['id']} {id}": _row(id, sequence)
            for id, told in self._last["models"].items()
            for sequence in told.get("sequences", ())
        }
        for key in [key.value for key in table.rows if key.value not in rows]:
            table.remove_row(key or "")
        known = {key.value for key in table.rows}
        for key, row in rows.items():
            if key not in known:
                table.add_row(*row, key=key)
                continue
            for name, cell in zip(COLUMNS, row, strict=True):
                table.update_cell(key, name, cell, update_width=True)

    # ---- what is wanted ----------------------------------------------------------------------------------

    async def action_cancel(self) -> None:
        table = self._table
        if not table.row_count:
            self.notify("no request is under way")
            return
        key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""
        id, _, model = key.partition(" ")
        try:
            await self._server.cancel(model, int(id))
            self.notify(f"request {id} of {model} is cancelled", markup=False)
        except LlaminaError as error:
            self.notify(str(error), severity="error", markup=False)

    def action_model(self) -> None:
        names = [None, *self._last["models"]]
        self._model = names[(names.index(self._model) + 1) % len(names)] if self._model in names else None
        self._show()

    def action_leave(self) -> None:
        """Back to what was there before, or out."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.app.exit()


def _model_line(id: str, told: dict[str, Any]) -> Text:
    line = Text.assemble(("● " if told["status"] == "ready" else "○ "), (id, "bold"), f" {told['status']}")
    if "stats" in told:
        stats, gauges = told["stats"], told["stats"]["gauges"]
        running = sum(sequence["state"] == "running" for sequence in told["sequences"])
        line.append(
            f" · {running} of {told['max_sequences']} sequences · {gauges['pages_used']:.0f} of {gauges['pages']:.0f} "
            f"pages · {stats['memory']['resident'] / 1e6:,.0f} MB · {stats['generated_tokens']:,} tokens so far"
        )
    return line


def _row(model: str, sequence: dict[str, Any]) -> tuple[Text, ...]:
    prompt, computed, most = sequence["prompt_tokens"], sequence["computed"], sequence["max_tokens"]
    read = f"{computed:,} of {prompt:,}" if computed < prompt else f"{prompt:,}"
    made = f"{sequence['generated']:,}" + (f" of {most:,}" if most else "")
    age = duration(sequence["seconds"])
    cells = (model, str(sequence["id"]), sequence["state"], read, f"{sequence['cached_tokens']:,}", made, age)
    return tuple(Text(cell, justify="left" if at in (0, 2) else "right") for at, cell in enumerate(cells))
