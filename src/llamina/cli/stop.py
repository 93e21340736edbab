"""`llamina stop`: a model out of a running server's memory, or the server itself."""

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import click

from llamina.cli.running import RunningServer, server_options
from llamina.cli.terminal import busy, note
from llamina.repl.connection import ServerError

PATIENCE = 120.0  # seconds for answers under way to end; a server's own `grace` is 10 unless it says otherwise


@click.command("stop")
@click.argument("model", required=False)
@server_options
def command(model: str | None, url: str, api_key: str | None) -> None:
    """Unload MODEL from a running server; without a name, end the server.

    A model that answers requests is unloaded when they are done; the next request for it loads it again. A server is
    ended by SIGTERM, so it must be a process of this machine: answers under way have its `grace` seconds.

    \b
    Examples:
      llamina stop smollm2
      llamina stop
      llamina stop --url http://127.0.0.1:8000
    """
    server = RunningServer(url, api_key)
    if model is None:
        _end(server)
    else:
        _unload(server, model)


def _unload(server: RunningServer, name: str) -> None:
    before = {model["id"]: model["meta"] for model in server.loaded()}
    server.unload(name)
    after = {model["id"] for model in server.loaded()}
    known = [id for id, meta in before.items() if name.removesuffix(":latest") in (id, *meta.get("aliases", ()))]
    if gone := [id for id in before if id not in after]:
        note(f"{', '.join(gone)} is unloaded")
    elif known:
        note(f"{known[0]} is unloaded as soon as its {before[known[0]].get('requests', 0)} requests are done")
    else:
        note(f"{name} is not loaded: loaded are {', '.join(before) or 'none'}")


def _end(server: RunningServer) -> None:
    server.loaded()  # raises unless a server of ours answers
    address = urlsplit(server.url)
    port = address.port or (443 if address.scheme == "https" else 80)
    if not _is_local(str(address.hostname)):
        raise ServerError(f"{server.url} is another machine's: end the server there, or unload a model by its name")
    process = next(_listening(port), None)
    if process is None:
        way = "end it where it was started: Ctrl-C, systemctl stop, docker stop"
        raise ServerError(f"the server at {server.url} is no process that this user can see: {way}")
    import psutil

    process.terminate()
    with busy("waiting for answers under way"):
        try:
            process.wait(PATIENCE)
        except psutil.TimeoutExpired:
            way = f"wait for its answers, or end it at once with `kill {process.pid}`"
            raise ServerError(f"process {process.pid} still runs after {PATIENCE:.0f} seconds: {way}") from None
    note(f"the server at {server.url} has ended")


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return False


def _listening(port: int) -> Iterator[Any]:
    """The processes of `llamina serve` that listen on a port, as far as this user may look."""
    import psutil

    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            ours = "serve" in words and any("llamina" in word for word in words)
            if ours and any(
                found.status == psutil.CONN_LISTEN and found.laddr.port == port
                for found in process.net_connections("tcp")
            ):
                yield process
        except psutil.Error:  # it has ended, or is another user's
            continue
