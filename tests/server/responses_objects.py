"""Responses and their events, validated strictly by the official client's models and by those of Open Responses."""

import json
from functools import reduce
from operator import or_
from typing import Any

import httpx
import openai
import openresponses_types as open_responses
from live_server import PATIENCE, Live
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

GREEDY: dict[str, Any] = {"temperature": 0, "max_output_tokens": 12}
QUESTION = "What is the capital of Japan?"
CAPITAL: Any = {
    "type": "function",
    "name": "capital",
    "description": "The capital of a country",
    "parameters": {
        "type": "object",
        "properties": {"country": {"enum": ["Japan", "Peru"]}},
        "required": ["country"],
        "additionalProperties": False,
    },
    "strict": True,
}
# fields that Open Responses has and the official client has not
OPEN_FIELDS = {"store", "presence_penalty", "frequency_penalty", "bytes", "error"}
OPEN_EVENTS: Any = TypeAdapter(
    reduce(or_, [kind for name, kind in vars(open_responses).items() if name.endswith("StreamingEvent")])
)
LIFE = ("response.completed", "response.incomplete", "response.failed")


def official_client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def known(value: Any, where: str = "$") -> None:
    """Fail for a field that no specification has."""
    if isinstance(value, BaseModel):
        assert set(value.model_extra or ()) <= OPEN_FIELDS, f"{where} has {value.model_extra}"
        for name in type(value).model_fields:
            known(getattr(value, name), f"{where}.{name}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            known(item, f"{where}[{i}]")


def strict(kind: Any, data: Any) -> Any:
    found = TypeAdapter(kind).validate_json(data if isinstance(data, bytes) else json.dumps(data), strict=True)
    known(found)
    return found


def strict_response(data: Any) -> Response:
    """A response that both specifications accept."""
    plain = json.loads(data) if isinstance(data, bytes) else data
    if plain["text"]["format"]["type"] != "json_schema":  # Open Responses' types have no place for a schema
        open_responses.ResponseResource.model_validate(plain)
    found: Response = strict(Response, plain)
    return found


def created(live: Live, **body: Any) -> Response:
    """A response, as it comes over the wire."""
    answer = live.post("/v1/responses", body)
    assert answer.status_code == 200, answer.text
    return strict_response(answer.content)


def raw_events(text: str) -> list[Any]:
    """The events of a stream, each validated by both specifications, and all of them in a right order."""
    blocks = [block for block in text.strip().split("\n\n") if not block.startswith(":")]
    assert blocks[-1] == "data: [DONE]"
    plain = []
    for block in blocks[:-1]:
        name, data = (line.split(": ", 1)[1] for line in block.split("\n"))
        plain.append(json.loads(data))
        assert plain[-1]["type"] == name
    return [_validated(one) for one in plain]


def _validated(one: dict[str, Any]) -> Any:
    other = one["type"].replace("response.reasoning_text.", "response.reasoning.")  # Open Responses' name
    OPEN_EVENTS.validate_json(json.dumps(one | {"type": other}))
    return strict(ResponseStreamEvent, one)


def streamed(live: Live, **body: Any) -> list[Any]:
    url, body = f"{live.url}/v1/responses", body | {"stream": True}
    with httpx.stream("POST", url, json=body, timeout=PATIENCE) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = raw_events(answer.read().decode())
    check_order(events)
    return events


def check_order(events: list[Any]) -> None:
    """Whether events begin, go on and end as they must, and come to the response that the last one has."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type in LIFE
    items: list[Any] = []
    texts: dict[int, str] = {}
    for event in events:
        match event.type:
            case "response.output_item.added":
                assert event.output_index == len(items) and event.item.status == "in_progress"
                items.append(event.item)
                texts[event.output_index] = ""
            case name if name.endswith(".delta"):
                assert event.item_id == items[event.output_index].id
                texts[event.output_index] += event.delta
            case "response.output_text.done" | "response.reasoning_text.done":
                assert event.text == texts[event.output_index]
            case "response.function_call_arguments.done":
                assert event.arguments == texts[event.output_index] and event.name == items[event.output_index].name
            case "response.output_item.done":
                assert event.item.id == items[event.output_index].id and event.item.status != "in_progress"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in events[-1].response.output]


def names(events: list[Any]) -> list[str]:
    """The events' names without repetition of deltas."""
    found: list[str] = []
    for event in events:
        name = event.type.removeprefix("response.")
        if not found or found[-1] != name:
            found.append(name)
    return found
