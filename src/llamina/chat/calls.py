"""The tools that an answer may call, and the calls it makes."""

import secrets
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from llamina.chat.events import CallArguments, CallBegin, CallDropped, CallEnd
from llamina.chat.reader import NotACall, Parse, Reader
from llamina.errors import RequestError

_LETTERS = string.ascii_letters + string.digits


def random_id() -> str:
    """Nine letters and digits, which is what the strictest of templates (Mistral's) take."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


class Tools:
    """Tools by name, as JSON schemas."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.described: list[dict[str, Any]] = [_described(tool) for tool in tools]
        self.functions: dict[str, dict[str, Any]] = {}
        for tool in self.described:
            name = tool["function"]["name"]
            if name in self.functions:
                raise RequestError(f"two tools are called {name!r}: give each a name of its own", "tools")
            self.functions[name] = tool["function"]

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def parameters(self, name: str) -> dict[str, Any]:
        """The schema of a tool's arguments."""
        found: dict[str, Any] = self.functions.get(name, {}).get("parameters") or {"type": "object", "properties": {}}
        return found

    def property_names(self, name: str) -> list[str]:
        return list(self.parameters(name).get("properties", {}))

    def types(self, name: str, parameter: str) -> set[str]:
        """The JSON types that a parameter may have; none if nothing is known of it."""
        schema = self.parameters(name).get("properties", {}).get(parameter)
        return _types(schema) if isinstance(schema, Mapping) else set()

    def loosened(self) -> "Tools":
        """With the names and types of arguments alone, except of those tools that are `strict`."""
        return Tools([tool if tool["function"].get("strict") else _loosened(tool) for tool in self.described])

    def only(self, name: str) -> "Tools":
        """Just one of them."""
        return Tools([tool for tool in self.described if tool["function"]["name"] == name])


def _loosened(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool["function"].get("parameters") or {}
    kept = {key: schema[key] for key in ("type", "required") if key in schema}
    inner = schema.get("properties", {})
    types = {key: {"type": of["type"]} if isinstance(of, Mapping) and "type" in of else {} for key, of in inner.items()}
    return {**tool, "function": {**tool["function"], "parameters": kept | {"properties": types}}}


def _described(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool in the form that templates take, from that or from its inner part alone."""
    function = tool.get("function", tool if "name" in tool else None) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or tool.get("type", "function") != "function":
        message = f'{tool!r} is no tool: {{"type": "function", "function": {{"name": …, "parameters": …}}}} is expected'
        raise RequestError(message, "tools")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"a tool is called {name!r}: a name is expected", "tools")
    if not isinstance(function.get("parameters", {}), Mapping | None):
        raise RequestError(
            f"the parameters of {name} are {function['parameters']!r}: a JSON schema is expected", "tools"
        )
    inner = {key: value for key, value in function.items() if key != "type"}
    return {"type": "function", "function": inner}


def _types(schema: Mapping[str, Any]) -> set[str]:
    if "enum" in schema and "type" not in schema:
        return {_type_of(value) for value in schema["enum"]}
    kind = schema.get("type")
    found = {kind} if isinstance(kind, str) else set(kind or ())
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key, ()):
            found |= _types(option) if isinstance(option, Mapping) else set()
    return found


def _type_of(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def fits(value: Any, types: set[str]) -> bool:
    """Whether a value is of one of these JSON types."""
    kind = _type_of(value)
    whole = kind == "number" and float(value).is_integer() and "integer" in types
    return kind in types or (kind == "integer" and "number" in types) or whole


class Calls:
    """Numbers the calls of an answer."""

    def __init__(self, tools: Tools, new_id: Callable[[], str] = random_id) -> None:
        self.tools = tools
        self.index = -1
        self.is_open = False
        self.ended_at = 0  # where in the reader's text the last complete call ended
        self._new_id = new_id

    def begin(self, name: str, id: str = "") -> CallBegin:
        """A call begins; a name that no tool can have is none."""
        if not name or any(char in name for char in ' \t\r\n"<>{}'):
            raise NotACall(f"{name!r} is no name of a tool")
        self.index += 1
        self.is_open = True
        return CallBegin(self.index, id or self._new_id(), name)

    def end(self, reader: Reader) -> CallEnd:
        """The call is complete."""
        self.is_open = False
        self.ended_at = reader.at
        return CallEnd(self.index)

    def drop(self) -> CallDropped:
        """The call turned out to be none."""
        self.is_open = False
        return CallDropped(self.index)

    def whole(self, reader: Reader, name: str, arguments: str, id: str = "") -> Parse[None]:
        """A call that is known as a whole."""
        yield self.begin(name, id)
        yield CallArguments(self.index, arguments)
        yield self.end(reader)
