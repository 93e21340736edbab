"""The events of a response in the background, for whoever follows it."""

import asyncio
from collections.abc import AsyncIterator

from llamina.server.http import KEEP_ALIVE
from llamina.server.openai.responses.schema import ResponseEvent as Event


class EventLog:
    """Events in order; an event's sequence number is its place."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._ended = False
        self._news = asyncio.Event()

    def add(self, event: Event) -> None:
        self.events.append(event)
        self._tell()

    def end(self) -> None:
        """Nothing more comes: followers leave after the last event."""
        self._ended = True
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def follow(self, after: int = -1) -> AsyncIterator[Event | None]:
        """The events after a sequence number, as they come; None after a while without any."""
        at = after + 1
        while True:
            news = self._news
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self._ended:
                return
            try:
                if news is self._news:
                    await asyncio.wait_for(news.wait(), KEEP_ALIVE)
            except TimeoutError:
                yield None
