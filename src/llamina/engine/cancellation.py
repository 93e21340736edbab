"""What one call has under way, so that whoever waits for it can cancel all of it."""

from collections.abc import Callable
from contextvars import ContextVar

from llamina.errors import RequestError


class Scope:
    """What one caller has under way, so that all of it can be cancelled from another thread.

    `cache_salt` is that of requests which read; one that generates has its own.
    """

    def __init__(self, cache_salt: str = "") -> None:
        self.cache_salt = cache_salt
        self._cancels: list[Callable[[], None]] = []
        self._cancelled = False

    def add(self, cancel: Callable[[], None]) -> None:
        """Remember how something is cancelled. Raises RequestError if the scope was cancelled."""
        self._cancels.append(cancel)
        if self._cancelled:
            cancel()
            raise RequestError("the request was cancelled")

    def cancel(self) -> None:
        self._cancelled = True
        for cancel in self._cancels:
            cancel()


SCOPE: ContextVar[Scope | None] = ContextVar("llamina_scope", default=None)


def remember(cancel: Callable[[], None]) -> None:
    """Tell the caller's scope, if there is one, how something is cancelled."""
    if (scope := SCOPE.get()) is not None:
        scope.add(cancel)
