"""The figures of a running server, as its dashboard gets them, and the way to cancel a request there."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from llamina.repl.connection import ServerError, refusal

Snapshot = Mapping[str, Any]  # {"time", "models": {id: {"status", "stats", "sequences", "max_sequences"}}}
PATIENCE = httpx.Timeout(10, read=30)


class Server:
    """`url` is the server's address, with `/v1` behind it or without."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """What every model counts and does, once a second. Raises ServerError when it cannot be had any more."""
        address = f"{self.url}/dashboard/events"
        try:
            async with (
                httpx.AsyncClient(headers=self._headers, timeout=PATIENCE) as client,
                client.stream("GET", address) as response,
            ):
                if not response.is_success:
                    await response.aread()
                    raise refusal(response)
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line[5:])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ServerError(f"{address}: {str(error) or type(error).__name__}") from error

    async def cancel(self, model: str, id: int) -> None:
        """End a request that is under way. Raises ServerError if there is no such request, or it may not be ended."""
        address = f"{self.url}/dashboard/requests/{quote(model)}/{id}"
        try:
            async with httpx.AsyncClient(headers=self._headers, timeout=PATIENCE) as client:
                response = await client.delete(address)
        except httpx.HTTPError as error:
            raise ServerError(f"{address}: {str(error) or type(error).__name__}") from error
        if not response.is_success:
            raise refusal(response)
