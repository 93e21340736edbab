"""A model behind a URL as a partner: any server with OpenAI's chat API."""

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from llamina.engine.request import OPTIONS, SAMPLING, check_names
from llamina.errors import SnapshotError
from llamina.repl import transcript
from llamina.repl.connection import ServerError, check, connect
from llamina.repl.partner import Figures, Message, Piece
from llamina.repl.server_events import Server, Snapshot


class RemoteReply:
    """A stream of server-sent events, piece by piece."""

    def __init__(self, client: httpx.Client, url: str, body: dict[str, Any]) -> None:
        self._client, self._url, self._body = client, url, body
        self._stopped = False
        self._text, self._reasoning = "", ""
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: dict[str, Any] = {}
        self._reason = "stop"
        self._pieces = 0
        self._begun = self._first = self._last = time.perf_counter()

    def __iter__(self) -> Iterator[Piece]:
        self._begun = time.perf_counter()
        try:
            with self._client.stream("POST", self._url, json=self._body) as response:
                check(response)
                for line in response.iter_lines():
                    if self._stopped:
                        self._reason = "cancelled"
                        return
                    if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
                        yield from self._take(json.loads(data))
        except (httpx.HTTPError, ValueError) as error:
            raise ServerError(f"{self._url}: {error}") from error

    def _take(self, event: dict[str, Any]) -> Iterator[Piece]:
        if "error" in event:
            raise ServerError(str(event["error"].get("message", event["error"])))
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            text, reasoning = delta.get("content") or "", delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                self._take_call(call)
            self._reason = choice.get("finish_reason") or self._reason
            if text or reasoning:
                self._last = time.perf_counter()
                self._first = self._first if self._pieces else self._last
                self._pieces += 1
                self._text, self._reasoning = self._text + text, self._reasoning + reasoning
                yield Piece(text, reasoning)

    def _take_call(self, part: dict[str, Any]) -> None:
        function = part.get("function") or {}
        call = self._calls.setdefault(
            part.get("index", 0), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def stop(self) -> None:
        self._stopped = True

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._text}
        if self._reasoning:
            message["reasoning_content"] = self._reasoning
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        return message

    def figures(self) -> Figures:
        usage, span = self._usage, self._last - self._first
        made = usage.get("completion_tokens", self._pieces)
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Figures(
            usage.get("prompt_tokens", 0),
            cached,
            made,
            self._first - self._begun if self._pieces else None,
            (made - 1) / span if span > 0 and made > 1 else None,
            self._reason,
        )


class RemotePartner:
    """`url` is that of the API, as `http://127.0.0.1:8080/v1`."""

    def __init__(self, url: str, model: str | None = None, key: str | None = None) -> None:
        """Raises ServerError if the server does not answer, or has no such model."""
        self._url = url.rstrip("/")
        self._server = Server(url, key)
        self._client = connect(key)
        self._listed = self._list()
        self.name = ""
        self.use(model or next(iter(self._listed), ""))

    def _list(self) -> dict[str, dict[str, Any]]:
        try:
            response = self._client.get(f"{self._url}/models")
            check(response)
            return {entry["id"]: entry for entry in response.json()["data"]}
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise ServerError(
                f"{self._url}/models: {error}: is the server there, and is the URL that of /v1?"
            ) from error

    @property
    def context(self) -> int | None:
        entry = self._listed.get(self.name, {})
        found = entry.get("context_length") or entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
        return int(found) if found else None

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> RemoteReply:
        body = {"model": self.name, "messages": list(messages), "stream": True, **options}
        return RemoteReply(
            self._client, f"{self._url}/chat/completions", body | {"stream_options": {"include_usage": True}}
        )

    def check(self, options: Mapping[str, Any]) -> None:
        check_names(options, OPTIONS | SAMPLING)

    def models(self) -> list[str]:
        self._listed = self._list()
        return list(self._listed)

    def use(self, name: str) -> None:
        if name not in self._listed and name not in self.models():
            known = ", ".join(self._listed) or "none"
            raise ServerError(f"the server has no model {name!r}: there are {known}")
        self.name = name

    def stats(self) -> dict[str, str]:
        return {"server": self._url, "model": self.name, "context": f"{self.context or 'unknown'}"}

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Those of all models of the server; raises ServerError if it is none of ours."""
        async for snapshot in self._server.snapshots():
            yield snapshot

    def save(self, path: Path, messages: Sequence[Message]) -> str:
        transcript.write(path, messages)
        return f"{len(messages)} messages"

    def load(self, path: Path) -> list[dict[str, Any]]:
        found = transcript.read(path)
        if found is None:
            raise SnapshotError(f"{path} has a KV cache in it: open it with a model of this machine, without --url")
        return found

    def close(self) -> None:
        self._client.close()
