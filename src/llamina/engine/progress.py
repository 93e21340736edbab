"""Deltas as the progress of a bar: tqdm's, or a widget of a notebook."""

import math
import time
from collections.abc import Callable
from typing import Any, Protocol

from llamina.engine.delta import Delta

PAUSE = 0.05  # seconds between two changes of a widget, each of which is a message to the browser


class Bar(Protocol):
    """What we ask of a progress bar; tqdm's have it."""

    total: Any

    def update(self, n: float = 1) -> Any: ...


class Widget(Protocol):
    """What we ask of a widget; `IntProgress` and `FloatProgress` of ipywidgets have it."""

    max: Any
    value: Any


def progress(bar: Bar | Widget, max_tokens: int | None = None) -> Callable[[Delta], None]:
    """A listener (`on_delta`) that moves a bar along as prompt tokens are computed and tokens generated.

    `max_tokens` is what the request was given: it is part of the bar's total until the end.
    """
    target: Any = bar
    seen = generated = 0
    shown = -math.inf

    def move(delta: Delta) -> None:
        nonlocal seen, generated, shown
        prompt, generated = delta.prompt_tokens, generated + len(delta.tokens)
        done = generated + (prompt if generated or delta.finish_reason else min(delta.computed, prompt))
        total = done if delta.finish_reason else prompt + (max_tokens or 0)
        now = time.perf_counter()
        if hasattr(target, "update"):
            target.total = total
            target.update(done - seen)
        elif delta.finish_reason or now - shown >= PAUSE:
            target.max, target.value, shown = max(total, done), done, now
        seen = done

    return move
