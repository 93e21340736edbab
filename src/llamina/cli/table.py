"""A table as text: plain for pipes, with rules on a terminal, or Markdown."""

import sys
from dataclasses import dataclass, field

import click


@dataclass(slots=True)
class Table:
    """Headers and rows of text; the first column is aligned left, the others right."""

    headers: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def plain(self) -> str:
        """Columns separated by spaces."""
        widths = self._widths(1)
        return "\n".join(_line(row, widths, "  ").rstrip() for row in (self.headers, *self.rows))

    def markdown(self) -> str:
        """A Markdown table."""
        widths = self._widths(3)
        rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
        first, *rest = (f"| {_line(row, widths, ' | ')} |" for row in (self.headers, *self.rows))
        return "\n".join([first, f"|{rule}|", *rest])

    def _widths(self, least: int) -> list[int]:
        rows = [self.headers, *self.rows]
        return [max(least, *(len(row[i]) for row in rows)) for i in range(len(self.headers))]

    def show(self) -> None:
        """Print it: with rules on a terminal, else plain."""
        if not sys.stdout.isatty():
            click.echo(self.plain())
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table as Ruled

        ruled = Ruled(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, header in enumerate(self.headers):
            ruled.add_column(header, justify="right" if i else "left", no_wrap=True)
        for row in self.rows:
            ruled.add_row(*row)
        Console().print(ruled)


def _line(row: list[str], widths: list[int], between: str) -> str:
    cells = zip(row, widths, strict=True)
    return between.join(f"{text:>{width}}" if i else f"{text:<{width}}" for i, (text, width) in enumerate(cells))
