"""What people see besides the answer: dim lines and progress on stderr."""

import sys
from types import TracebackType
from typing import Any, Literal, Self

import click


def note(text: str) -> None:
    """A line on stderr, dim where that is a terminal."""
    click.secho(text, err=True, dim=True)


def bytes_text(nbytes: float) -> str:
    """A size in decimal units, as file managers and download pages show it."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} GB"


def count_text(count: float) -> str:
    """A number of parameters, as model names write it."""
    for unit in ("", "K", "M"):
        if count < 1000:
            return f"{count:.4g}{unit}"
        count /= 1000
    return f"{count:.2f}B"


class Meter:
    """Progress: a bar while it lasts on a terminal, elsewhere one line at its beginning."""

    def __init__(self, unit: Literal["bytes", "kernels"], quiet: bool = False, doing: str = "fetching") -> None:
        self._unit = unit
        self._doing = "compiling" if unit == "kernels" else doing
        self._quiet = quiet
        self._said: set[str] = set()
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if total and sys.stderr.isatty():
            self._draw(what, done, total)
        elif done < total or not total:
            self._announce(what, total)

    def _announce(self, what: str, total: int) -> None:
        text = (
            f"compiling {total} kernels for this CPU, once"
            if self._unit == "kernels"
            else f"{self._doing} {what}" + (f" ({bytes_text(total)})" if total else "")
        )
        if text not in self._said:
            self._said.add(text)
            note(text)

    def _draw(self, what: str, done: int, total: int) -> None:
        title = f"{self._doing} {what}"
        if self._bar is None:
            self._bar = _bar(self._unit)
            self._bar.add_task(title, total=total)
            self._bar.start()
        self._bar.update(0, description=title, completed=done, total=total)


def _bar(unit: str) -> Any:
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

    bytes_columns = [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    columns = bytes_columns if unit == "bytes" else [MofNCompleteColumn()]
    title = TextColumn("{task.description}", markup=False)
    return Progress(title, BarColumn(), *columns, console=Console(stderr=True), transient=True)
