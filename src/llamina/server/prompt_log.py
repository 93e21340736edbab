"""Prompts and answers in the log, where `log_prompts` asks for them."""

import logging
from typing import Any

import msgspec

from llamina.server.model import Chunk, Model
from llamina.server.model.client import ChunkStream
from llamina.server.model.frames import ErrorInfo
from llamina.server.record import current

log = logging.getLogger("llamina.prompts")
ASKED = ("prompt", "messages", "prefill", "suffix")


def log_prompts(model: Model) -> None:
    """Let the log have what a model is asked from now on, and what it answers once that is complete."""
    generate = model.generate

    def logged(**asked: Any) -> ChunkStream:
        record = current()
        id = record.id if record is not None else ""
        _tell(id, "asked", {name: asked[name] for name in ASKED if asked.get(name)})
        stream = generate(**asked)
        _listen(stream, id)
        return stream

    model.generate = logged  # type: ignore[method-assign]


def _listen(stream: ChunkStream, id: str) -> None:
    """Tell of every answer of a stream when its last chunk comes."""
    put, texts = stream.put, dict[int, list[str]]()

    def heard(item: Chunk | ErrorInfo) -> None:
        if isinstance(item, Chunk):
            said = texts.setdefault(item.index, [])
            said += [item.reasoning, item.text, *(f"{call.name or ''}{call.arguments}" for call in item.calls)]
            if item.finish_reason is not None:
                _tell(id, "answered", {"index": item.index, "text": "".join(said), "ended": item.finish_reason})
        put(item)

    stream.put = heard  # type: ignore[method-assign]


def _tell(id: str, what: str, said: dict[str, Any]) -> None:
    text = msgspec.json.encode(said).decode()
    log.info("%s %s: %s", id, what, text, extra={"fields": {"request_id": id, what: said}})
