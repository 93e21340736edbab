"""A plot of the last minutes in a frame: a column each second, drawn with eighths of blocks."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.widget import Widget

from llamina.tui.history import Point

EIGHTHS = " ▁▂▃▄▅▆▇█"
Format = Callable[[float], str]
Value = float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """What a plot shows: `of` is a point's value, `behind` a second one that is drawn behind it."""

    title: str
    of: Callable[[Point], Value]
    format: Format
    behind: Callable[[Point], Value] | None = None
    behind_name: str = ""


def few(value: float) -> str:
    """A number of three digits or so."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def percent(value: float) -> str:
    return f"{few(value)} %"


def duration(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def rounded_up(value: float) -> float:
    """The next number that is 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def columns(values: Sequence[Value], most: float, height: int) -> list[int]:
    """Each value in eighths of a row, from 0 to 8 × height; one that is not known has none."""
    top = 8 * height
    return [0 if value is None else min(top, round(top * value / most)) for value in values]


class Plot(Widget):
    """A frame with a title, the latest value, and a curve."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"plot--front", "plot--behind"}
    DEFAULT_CSS = """
    Plot {
        height: 7; min-width: 16;
        border: round $foreground 20%;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        border-title-align: left; border-subtitle-align: right;
        & > .plot--front { color: $primary; }
        & > .plot--behind { color: $primary 40%; }
    }
    """

    def __init__(self, curve: Curve, id: str | None = None) -> None:
        super().__init__(id=id)
        self.curve = curve
        self._points: list[Point] = []
        self.border_title = curve.title

    @property
    def latest(self) -> Value:
        return self.curve.of(self._points[-1]) if self._points else None

    def draw(self, points: Iterable[Point]) -> None:
        """Show these points; the last is now."""
        self._points = list(points)
        curve, (front, behind, most) = self.curve, self._values()
        now, second = front[-1] if front else None, behind[-1] if behind else None
        self.border_title = f"{curve.title} [b]{'–' if now is None else curve.format(now)}[/]"
        told = f"{curve.behind_name} {curve.format(second)} · " if second is not None else ""
        self.border_subtitle = f"{told}≤ {curve.format(most)}"
        self.refresh()

    def render(self) -> Text:
        front, behind, most = self._values()
        return self._drawn(columns(front, most, self.size.height), columns(behind, most, self.size.height))

    def _values(self) -> tuple[list[Value], list[Value], float]:
        """Of the points there is room for: values, those behind them, and the end of the scale."""
        curve, shown = self.curve, self._points[-self.size.width :]  # all of them before it has a size
        front = [curve.of(point) for point in shown]
        behind = [curve.behind(point) if curve.behind else None for point in shown]
        known = [value for value in (*front, *behind) if value is not None]
        return front, behind, rounded_up(max(known, default=0))

    def _drawn(self, front: Sequence[int], behind: Sequence[int]) -> Text:
        width, height = self.size
        color = self.get_component_styles("plot--front").color.rich_color
        shade = (self.background_colors[1] + self.get_component_styles("plot--behind").color).rich_color
        whole = {True: Style(color=color, bgcolor=color), False: Style(color=shade, bgcolor=shade)}  # leaves no seams
        lines = []
        for row in range(height - 1, -1, -1):
            line = Text(" " * (width - len(front)))
            for near, far in zip(front, behind, strict=True):
                near_cell, far_cell = (min(8, max(0, value - 8 * row)) for value in (near, far))
                if near_cell == 8 or (near_cell == 0 and far_cell == 8):
                    line.append(EIGHTHS[8], whole[near_cell == 8])
                elif near_cell >= far_cell:
                    line.append(EIGHTHS[near_cell], Style(color=color))
                elif near_cell == 0:
                    line.append(EIGHTHS[far_cell], Style(color=shade))
                else:  # both end in this cell, or the one behind is whole
                    line.append(EIGHTHS[near_cell], Style(color=color, bgcolor=shade))
            lines.append(line)
        return Text("\n").join(lines)
