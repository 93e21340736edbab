"""Deltas as the progress of a bar, such as one of tqdm."""

from collections.abc import Callable
from typing import Any, Protocol

from llamina.engine.delta import Delta


class Bar(Protocol):
    """What we ask of a progress bar; tqdm's have it."""

    total: Any

    def update(self, n: float = 1) -> Any: ...


def progress(bar: Bar, max_tokens: int | None = None) -> Callable[[Delta], None]:
    """A listener (`on_delta`) that moves a bar along as prompt tokens are computed and tokens generated.

    `max_tokens` is what the request was given: it is part of the bar's total until the end.
    """
    seen = generated = 0

    def move(delta: Delta) -> None:
        nonlocal seen, generated
        prompt, generated = delta.prompt_tokens, generated + len(delta.tokens)
        done = generated + (prompt if generated or delta.finish_reason else min(delta.computed, prompt))
        bar.total = done if delta.finish_reason else prompt + (max_tokens or 0)
        bar.update(done - seen)
        seen = done

    return move
