"""Python functions as tools."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest

from llamina.chat import ToolCall
from llamina.chat.functions import Functions, ToolFailed, describe
from llamina.errors import RequestError


def weather(city: str, unit: Literal["C", "F"] = "C", days: int = 1, near: list[str] | None = None) -> dict[str, Any]:
    """The weather of a city.

    It may be wrong.

    Args:
        city: Its name,
            in English.
        unit (str): Of the temperature.

    Returns:
        Something.
    """
    return {"city": city, "unit": unit, "days": days, "near": near}


def test_a_tool_from_a_signature() -> None:
    assert describe(weather) == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.\n\nIt may be wrong.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name, in English."},
                    "unit": {"enum": ["C", "F"], "description": "Of the temperature.", "default": "C"},
                    "days": {"type": "integer", "default": 1},
                    "near": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }


def test_types() -> None:
    def f(
        a: float,
        b: bool,
        c: dict[str, int],
        d: Sequence[int],
        e: Any,
        g: Annotated[str, "a note"],
        h: list,
        i,  # type: ignore[no-untyped-def, type-arg]
    ) -> None: ...

    properties = describe(f)["function"]["parameters"]["properties"]
    assert properties == {
        "a": {"type": "number"},
        "b": {"type": "boolean"},
        "c": {"type": "object", "additionalProperties": {"type": "integer"}},
        "d": {"type": "array", "items": {"type": "integer"}},
        "e": {},
        "g": {"type": "string", "description": "a note"},
        "h": {"type": "array"},
        "i": {},
    }


def test_functions_that_are_no_tools() -> None:
    def starred(*args: int) -> None: ...
    def odd(a: bytes) -> None: ...

    with pytest.raises(RequestError, match=r"\*args"):
        describe(starred)
    with pytest.raises(RequestError, match=r"odd\(a\) is a .*bytes"):
        describe(odd)
    with pytest.raises(RequestError, match="no functions"):
        Functions([])


def shout(text: str) -> str:
    if not text:
        raise ValueError("nothing to shout")
    return text.upper()


def test_calling() -> None:
    functions = Functions([weather, shout])
    assert functions.call(ToolCall("1", "shout", '{"text": "é"}')) == "É"
    assert json.loads(functions.call(ToolCall("1", "weather", '{"city": "Oslo", "days": 2}')))["days"] == 2
    for name, arguments, message in [
        ("shout", '{"text": ""}', "ValueError: nothing to shout"),
        ("shout", '{"words": "a"}', "the arguments do not fit"),
        ("shout", "{", "the arguments do not fit"),
        ("shout", "[1]", "the arguments do not fit"),
        ("whisper", "{}", "there is no function 'whisper': there are weather, shout"),
    ]:
        with pytest.raises(ToolFailed, match=message):
            functions.call(ToolCall("1", name, arguments))
