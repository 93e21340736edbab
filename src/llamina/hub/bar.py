"""Progress on stderr, or in a notebook: drawn while something is fetched, compiled or read."""

import sys
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Literal, Self

Unit = Literal["bytes", "parts", "windows", "tensors", "requests"]  # parts: what loading takes, kernel by kernel
Surface = Literal["terminal", "widget", "lines"]


def surface() -> Surface | None:
    """Where progress can be shown: a terminal, a widget (with ipywidgets) or lines of a notebook; None: nowhere."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if hasattr(shell, "kernel"):
        return "widget" if find_spec("ipywidgets") is not None else "lines"
    return "terminal" if sys.stderr is not None and sys.stderr.isatty() else None


def progress_bar(unit: Unit, doing: str = "") -> "Bar | None":
    """A bar for whoever gives none; None where it cannot be shown."""
    where = surface()
    return Bar(unit, doing, where) if where is not None else None


class Bar:
    """Called as `progress(what, done, total)`; drawn from the first call on until all is done. It can begin again.

    A total of 0 is unknown: then nothing is drawn.
    """

    def __init__(self, unit: Unit, doing: str = "", where: Surface = "terminal") -> None:
        self._unit, self._doing, self._where = unit, doing, where
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        title = f"{self._doing} {what}".strip()
        if done >= total:  # more may come later, with other things on the screen in between
            self.stop()
        elif self._bar is not None:
            self._bar.update(0, description=title, completed=done, total=total)
        elif self._where == "lines":
            self._bar = _Line(f"{title} …")
        else:
            self._bar = _drawn(self._unit)
            self._bar.add_task(title, total=total, completed=done)
            self._bar.start()

    @property
    def drawn(self) -> bool:
        return self._bar is not None

    def stop(self) -> None:
        """Erase it, if it is drawn."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class _Line:
    """A line in the place of a bar."""

    def __init__(self, text: str) -> None:
        print(text, file=sys.stderr)

    def update(self, task: int, **state: Any) -> None:
        """Nothing more is told."""

    def stop(self) -> None:
        """It stays."""


def _drawn(unit: Unit) -> Any:
    """A bar of rich, which is a widget in a notebook."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns: dict[Unit, list[Any]] = {
        "bytes": [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()],
        "parts": [MofNCompleteColumn()],
        "windows": [MofNCompleteColumn(), TimeRemainingColumn()],
        "tensors": [MofNCompleteColumn(), TimeRemainingColumn()],
        "requests": [MofNCompleteColumn(), TimeRemainingColumn()],
    }
    title = TextColumn("{task.description}", markup=False)
    return Progress(title, BarColumn(), *columns[unit], console=Console(stderr=True), transient=True)
