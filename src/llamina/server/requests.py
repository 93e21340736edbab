"""Requests counted as they come and go: an ASGI middleware."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.engine.metrics import SECONDS, Histogram, histograms, samples

UNKNOWN = "unknown"  # the endpoint of paths that there are not: each would be a series of its own


class RequestCounts:
    """How many requests each endpoint had, with which status, how long they took, and how many are under way."""

    def __init__(self) -> None:
        self.active = 0
        self.answered: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}

    def add(self, endpoint: str, status: int, seconds: float) -> None:
        """A request that is done."""
        self.answered[endpoint, status] += 1
        self.seconds.setdefault(endpoint, Histogram(SECONDS)).observe(seconds)

    def lines(self) -> Iterator[str]:
        """In the text format of Prometheus."""
        counts = sorted(self.answered.items())
        by_status = [({"endpoint": endpoint, "status": str(status)}, n) for (endpoint, status), n in counts]
        yield from samples("requests_total", "counter", by_status)
        yield from samples("active_requests", "gauge", [({}, self.active)])
        took = [({"endpoint": endpoint}, found) for endpoint, found in sorted(self.seconds.items())]
        yield from histograms("http_request_seconds", took)


class CountRequests:
    """The middleware. Endpoints are known by their route's template, so there are as many as there are routes."""

    def __init__(self, app: ASGIApp, counts: RequestCounts, routes: Sequence[BaseRoute]) -> None:
        self._app, self._counts, self._routes = app, counts, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # unless an answer begins

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope["send_part"] = send  # for parts of a stream, of which no middleware wants to know
        begun, path = time.perf_counter(), dict(scope)
        self._counts.active += 1
        try:
            await self._app(scope, receive, watch)
        finally:
            self._counts.active -= 1
            self._counts.add(self._endpoint(path), status, time.perf_counter() - begun)

    def _endpoint(self, scope: Scope) -> str:
        """The template of the route that a request is for."""
        for route in self._routes:
            if isinstance(route, Route) and route.matches(scope)[0] != Match.NONE:
                return route.path
        return UNKNOWN
