"""A server that runs: where it is, and what it is asked by `ps` and `stop`."""

from typing import Any
from urllib.parse import urlsplit

import click
import httpx

from llamina.cli.options import Function
from llamina.repl.connection import ServerError, check, connect

DEFAULT_URL = "http://127.0.0.1:8080"


def server_options(function: Function) -> Function:
    """`--url` and `--api-key`."""
    function = click.option("--api-key", envvar="LLAMINA_API_KEY", metavar="KEY", help="The server's API key.")(
        function
    )
    return click.option(
        "--url",
        envvar="LLAMINA_URL",
        default=DEFAULT_URL,
        show_default=True,
        metavar="URL",
        help="The server's address, with /v1 or without; also LLAMINA_URL.",
    )(function)


class RunningServer:
    """A server at a URL. Methods raise ServerError if none answers there, or if it refuses."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = (url if "//" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise click.UsageError(f"{url!r} is not the address of a server: give one like {DEFAULT_URL}")
        self._key = key

    def loaded(self) -> list[dict[str, Any]]:
        """The models that are loaded or on their way: `id`, and what the server says of them as `meta`."""
        listed = self._ask("GET", "/v1/models")
        if not isinstance(listed.get("data"), list) or any("meta" not in model for model in listed["data"]):
            raise ServerError(f"{self.url} is not a server of llamina: it does not tell which models are loaded")
        return [model for model in listed["data"] if (model["meta"] or {}).get("status") in ("loading", "ready")]

    def unload(self, name: str) -> None:
        """Unload a model as soon as no request uses it."""
        self._ask("POST", "/api/generate", {"model": name, "keep_alive": 0})

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            with connect(self._key) as client:
                response = client.request(method, self.url + path, json=body)
                check(response)
                answer = response.json()
        except httpx.TransportError as error:
            way = "start one with `llamina serve`, or say where it is with --url or LLAMINA_URL"
            raise ServerError(f"no server answers at {self.url} ({error}): {way}") from error
        except ValueError as error:
            raise ServerError(f"{self.url} answers with something that is not JSON: is it the right --url?") from error
        return answer if isinstance(answer, dict) else {}
