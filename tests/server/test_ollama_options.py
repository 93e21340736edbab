"""Durations, formats and templates as Ollama's clients write them."""

import math
from typing import Any

import pytest

from llamina.server.errors import ApiError
from llamina.server.ollama.conversation import Function as Called
from llamina.server.ollama.conversation import Message, ToolCall, conversation
from llamina.server.ollama.options import closed, seconds
from llamina.server.ollama.template import PLAIN, Template


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (0, 0.0),
        (90, 90.0),
        ("0", 0.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        (-1, math.inf),
        ("-1", math.inf),
        ("-1m", math.inf),
        (1e300, math.inf),
        ("99999999999h", math.inf),
    ],
)
def test_durations(given: Any, expected: float | None) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize("given", ["", "soon", "5 minutes", "5mm", "m", "1h x"])
def test_what_is_no_duration(given: str) -> None:
    with pytest.raises(ApiError, match="keep_alive"):
        seconds(given)


def test_objects_of_a_format_have_no_further_properties() -> None:
    inner = {"type": "object", "properties": {"properties": {"type": "string"}}}
    free = {"type": "object", "properties": {}, "additionalProperties": True}
    schema = {"$defs": {"inner": inner}, "properties": {"a": {"anyOf": [inner]}, "free": free, "any": {}}}
    found = closed(schema)
    assert found["$defs"]["inner"] == inner | {"additionalProperties": False}
    assert found["properties"]["a"]["anyOf"][0]["additionalProperties"] is False
    assert found["properties"]["free"] == free and found["properties"]["any"] == {}
    assert "additionalProperties" not in schema
    both = {"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}
    assert closed(both) == both


CHATML = """{{- if .System }}<s>{{ .System }}</s>
{{- end }}
{{- if .Prompt }}
<u>{{ .Prompt }}</u>
{{ end }}<a>{{ .Response }}</a>
"""


def turns(*texts: str) -> list[dict[str, Any]]:
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[text[0]], "content": text} for text in texts]


def test_template_of_turns() -> None:
    template = Template(CHATML)
    assert template.prompt(turns("s", "u1")) == "<s>s</s>\n<u>u1</u>\n<a>"
    assert template.prompt(turns("u1", "a1", "u2")) == "\n<u>u1</u>\n<a>a1</a>\n\n<u>u2</u>\n<a>"
    assert template.prompt(turns("u1", "a1")) == "\n<u>u1</u>\n<a>a1"  # the answer goes on from there


def test_template_without_a_response_ends_with_it() -> None:
    template = Template("[INST] {{ .System }} {{ .Prompt }} [/INST]")
    assert template.prompt(turns("u1", "a1", "u2")) == "[INST]  u1 [/INST]a1[INST]  u2 [/INST]"
    assert Template(PLAIN).prompt(turns("s", "u")) == "s\n\nu"


def test_template_choices() -> None:
    template = Template(
        "{{ if and .System .Prompt }}both{{ else if or .System .Prompt }}one{{ else }}none{{ end }}"
        "{{ if not .System }} no system{{ end }}{{/* a comment */}}"
    )
    assert template.prompt(turns("s", "u")) == "both"
    assert template.prompt(turns("u")) == "one no system"
    assert template.prompt([]) == "none no system"


@pytest.mark.parametrize(
    "source",
    [
        "{{ range .Messages }}{{ .Content }}{{ end }}",
        "{{ .Tools }}",
        "{{ messages }}",
        "{{ if .System }}",
        "{{ end }}",
        "{{ if eq .System .Prompt }}{{ end }}",
        "{{ if }}{{ end }}",
        "{{ else }}",
    ],
)
def test_template_that_is_not_known(source: str) -> None:
    with pytest.raises(ApiError, match="Go template"):
        Template(source)


def test_results_find_their_calls() -> None:
    calls = [ToolCall(Called("f", {"x": 1})), ToolCall(Called("g")), ToolCall(Called("f", {"x": 2}), id="mine")]
    found = conversation(
        [
            Message("USER", "go"),
            Message("assistant", tool_calls=calls, thinking="hm"),
            Message("tool", "of g", tool_name="g"),
            Message("tool", "of mine", tool_call_id="mine"),
            Message("tool", "of f"),
            Message("tool", "of nothing", tool_name="h"),
        ],
        10,
    )
    assert found[0]["role"] == "user" and found[1]["reasoning_content"] == "hm"
    assert [call["id"] for call in found[1]["tool_calls"]] == ["call00000", "call00001", "mine"]
    assert found[1]["tool_calls"][0]["function"]["arguments"] == '{"x":1}'
    assert [message.get("tool_call_id") for message in found[2:]] == ["call00001", "mine", "call00000", None]
    assert [message["name"] for message in found[2:]] == ["g", "f", "f", "h"]
