"""Python functions as tools: a JSON schema from the signature and the docstring, and calling them."""

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from llamina.chat.events import ToolCall
from llamina.errors import LlaminaError, RequestError

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}
_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?):\s*$")
_ENTRY = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


class ToolFailed(LlaminaError):
    """A call failed: no such function, unfit arguments, or an exception in it. The message is for the model."""


class Functions:
    """Functions by name; `tools` are their descriptions."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        """Raises RequestError without functions, and for one that cannot be described."""
        self._functions = {function.__name__: function for function in functions}
        if not self._functions:
            raise RequestError("no functions are given: give at least one", "functions")
        self.tools = [describe(function) for function in self._functions.values()]

    def call(self, call: ToolCall) -> str:
        """Call a function and return its result as text: JSON unless it is a string. Raises ToolFailed."""
        function = self._functions.get(call.name)
        if function is None:
            raise ToolFailed(f"there is no function {call.name!r}: there are {', '.join(self._functions)}")
        try:
            arguments = json.loads(call.arguments)
            inspect.signature(function).bind(**arguments)
        except (ValueError, TypeError) as error:
            raise ToolFailed(f"the arguments do not fit: {error}") from error
        try:
            result = function(**arguments)
            return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        except Exception as error:  # the model is told whatever the caller's function raises
            raise ToolFailed(f"{type(error).__name__}: {error}") from error


def describe(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the tool that a signature and a docstring describe. Raises RequestError for a type without a schema."""
    text, notes = _docstring(inspect.getdoc(function) or "")
    hints = typing.get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            message = f"{function.__name__} has the parameter {parameter}: tools take named parameters only"
            raise RequestError(message, "functions")
        schema = _schema(hints.get(name, Any), f"{function.__name__}({name})")
        properties[name] = schema | ({"description": notes[name]} if name in notes else {})
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            properties[name]["default"] = parameter.default
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    inner = {"name": function.__name__, "description": text, "parameters": parameters}
    return {"type": "function", "function": inner}


def _schema(hint: Any, where: str) -> dict[str, Any]:
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    origin, inner = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        note = next((extra for extra in inner[1:] if isinstance(extra, str)), None)
        return _schema(inner[0], where) | ({"description": note} if note else {})
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(option, where) for option in inner]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1], where)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _schema(inner[0], where)}
    raise RequestError(f"{where} is a {hint}, for which there is no JSON schema: use str, int, list, …", "functions")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description, and the notes on parameters under `Args:`."""
    description: list[str] = []
    notes: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section = heading[1]
        elif not section:
            description.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            entry = _ENTRY.match(line)
            if entry:
                last = entry[1]
                notes[last] = entry[2].strip()
            elif last:
                notes[last] = f"{notes[last]} {line.strip()}".strip()
    return "\n".join(description).strip(), notes
