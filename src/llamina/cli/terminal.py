"""What people see besides the answer: notes, warnings and progress, all on stderr."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

import click

from llamina.hub.bar import Bar, Unit

SOON = 1.0  # seconds after which work is announced
CLEAR = "\r\x1b[2K"  # back to the start of the line, and erase it


def note(text: str) -> None:
    """A line on stderr, dim on a terminal."""
    click.secho(text, err=True, dim=True)


def warn(text: str) -> None:
    """A warning on stderr. `--quiet` does not hide it."""
    click.echo(click.style("warning: ", fg="yellow", bold=True) + text, err=True)


@contextmanager
def busy(what: str, quiet: bool = False) -> Iterator[None]:
    """On a terminal, shows what is going on if the block takes longer than a second; erased at its end."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    shown = threading.Event()

    def show() -> None:
        shown.set()
        overwrite(f"{what} …")

    timer = threading.Timer(SOON, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            overwrite("")


def overwrite(text: str) -> None:
    """Replace the terminal's line that stderr is on. Not by `click.echo`, which strips the codes under NO_COLOR."""
    sys.stderr.write(CLEAR + text)
    sys.stderr.flush()


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
    """Progress: a bar on a terminal until all is done, elsewhere one line at the beginning."""

    def __init__(self, unit: Unit, quiet: bool = False, doing: str = "fetching") -> None:
        self._unit = unit
        self._doing = "" if unit == "parts" else doing
        self._quiet = quiet
        self._said: set[str] = set()
        self._bar = Bar(unit, self._doing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if total and sys.stderr.isatty():
            self._draw(what, done, total)
        elif done < total or not total:
            self._announce(what, total)

    def _announce(self, what: str, total: int) -> None:
        size = bytes_text(total) if self._unit == "bytes" else f"{total} {self._unit}"
        if self._unit == "parts":
            text = f"compiling {total} kernels, once" if what.startswith("compiling") else f"loading {total} matrices"
            text = f"reading {total} MiB of weights" if what.startswith("reading") else text
        else:
            text = f"{self._doing} {what}" + (f" ({size})" if total else "")
        if text not in self._said:
            self._said.add(text)
            note(text)

    def _draw(self, what: str, done: int, total: int) -> None:
        if not self._bar.drawn:
            overwrite("")
        self._bar(what, done, total)


@contextmanager
def tidy() -> Iterator[None]:
    """Within the block SIGTERM raises SystemExit, so that an unfinished file is deleted."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = None
    with suppress(ValueError):  # not the main thread: signals are somebody else's
        before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
