"""Anthropic's objects, validated strictly by the official client's own models."""

import json
from typing import Any

import anthropic
import httpx
from anthropic.types import RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from live_server import PATIENCE, Live
from pydantic import BaseModel, TypeAdapter

GREEDY = {"temperature": 0}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def official_client(live: Live) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=live.url, api_key="none", max_retries=0, timeout=PATIENCE)


def known(value: Any, where: str = "$") -> None:
    """Fail for a field that the official models do not have."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, f"{where} has {value.model_extra}"
        for name in type(value).model_fields:
            known(getattr(value, name), f"{where}.{name}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            known(item, f"{where}[{i}]")


def strict(kind: Any, data: bytes | str) -> Any:
    found = TypeAdapter(kind).validate_json(data, strict=True)
    known(found)
    return found


def raw_events(live: Live, body: dict[str, Any]) -> list[Any]:
    """The events of a stream as they come over the wire, each validated; pings are left out."""
    events = []
    with httpx.stream("POST", f"{live.url}/v1/messages", json=body | {"stream": True}, timeout=PATIENCE) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["request-id"].startswith("req_")
        for block in response.read().decode().strip().split("\n\n"):
            name, data = (line.split(": ", 1)[1] for line in block.split("\n"))
            assert json.loads(data)["type"] == name
            if name == "ping":
                assert data == '{"type":"ping"}'
            elif name == "error":
                events.append(strict(ErrorResponse, data))
            else:
                events.append(strict(RawMessageStreamEvent, data))
    return events


def begun_blocks(events: list[Any]) -> list[tuple[int, str]]:
    """Index and type of every block; each must end before the next begins."""
    marks = [event for event in events if event.type in ("content_block_start", "content_block_stop")]
    begun, ended = marks[::2], marks[1::2]
    assert all(event.type == "content_block_start" for event in begun)
    assert [event.index for event in begun] == [event.index for event in ended]
    return [(event.index, event.content_block.type) for event in begun]
