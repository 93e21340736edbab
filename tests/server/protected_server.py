"""Servers with keys and limits, with a scripted model that answers at once."""

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from live_server import PATIENCE, Live, Scripted, done, said, serving

from llamina.gguf import GGUF, write
from llamina.server.config import Config
from llamina.server.model.frames import Call, Cancel, Result, ToModel

ADMIN = "sk-admin"
CLIENT = "sk-client"
CHAT: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}


class Talking(Scripted):
    """A scripted model that answers calls, too: there is nothing to tell."""

    def send(self, frame: ToModel) -> None:
        super().send(frame)
        if isinstance(frame, Call):
            value: Any = {"stats": {}, "cancel_sequence": False}.get(frame.verb, [])
            self._loop.call_soon(self.receive, Result(frame.id, value))


class Silent(Scripted):
    """A model that never answers, but ends what is cancelled."""

    def send(self, frame: ToModel) -> None:
        if isinstance(frame, Cancel):
            self.cancelled += 1
        else:
            self.asked.append(frame)


class Protected:
    """A live server and its admin API, with `scripted`, which says a word, and, if it is asked for, `silent`."""

    def __init__(self, live: Live, admin: str) -> None:
        self.live, self.url, self.admin = live, live.url, admin
        self.scripted = live.adopt("scripted", lambda: Talking([said(text="Hello"), done()]))

    @cached_property
    def silent(self) -> Silent:
        model = self.live.adopt("silent", lambda: Silent([]))
        assert isinstance(model, Silent)
        return model

    def ask(self, path: str, body: Any = None, key: str | None = None, method: str = "", **more: Any) -> httpx.Response:
        return _ask(self.url, path, body, key, method, **more)

    def manage(
        self, path: str, body: Any = None, key: str | None = None, method: str = "", **more: Any
    ) -> httpx.Response:
        return _ask(self.admin, path, body, key, method, **more)


def _ask(url: str, path: str, body: Any, key: str | None, method: str, **more: Any) -> httpx.Response:
    headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **more.pop("headers", {})}
    method = method or ("GET" if body is None else "POST")
    more.setdefault("timeout", PATIENCE)
    return httpx.request(method, url + path, json=body, headers=headers, **more)


TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tools or '' }}assistant:"


def templated(path: Path, out: Path, template: str = TEMPLATE) -> Path:
    """A copy of a model with a chat template."""
    with GGUF.open(path) as file:
        metadata = {**file.metadata, "tokenizer.chat_template": template}
        write(out, metadata, file.tensors.values(), metadata_types=file.metadata_types)
    return out


@contextmanager
def protected(**settings: Any) -> Iterator[Protected]:
    """A server with such settings."""
    with tempfile.TemporaryDirectory(prefix="llamina-protected-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        config = Config(**{"data": folder, "admin_port": port, **settings})
        with serving({}, config) as live:
            found = Protected(live, f"http://127.0.0.1:{port}")
            live.call(_listening(port))
            yield found


async def _listening(port: int) -> None:
    """Return when the admin API is there: it starts after the server."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
