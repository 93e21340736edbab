"""Events as the progress of a bar, such as one of tqdm."""

from collections.abc import Callable
from typing import Any, Protocol

from llamina.engine.request import Event


class Bar(Protocol):
    """What we ask of a progress bar; tqdm's have it."""

    total: Any

    def update(self, n: float = 1) -> Any: ...


def progress(bar: Bar) -> Callable[[Event], None]:
    """A listener (`on_event`) that moves a bar along as prompt tokens are computed and tokens made."""
    seen = 0

    def move(event: Event) -> None:
        nonlocal seen
        request = event.request
        prompt, made = len(request.prompt), len(request.generated)
        done = made + (prompt if made or event.finish_reason else min(request.computed, prompt))
        bar.total = done if event.finish_reason else prompt + (request.max_tokens or 0) or None
        bar.update(done - seen)
        seen = done

    return move
