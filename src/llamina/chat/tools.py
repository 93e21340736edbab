"""The tools that an answer may call: names and JSON schemas."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llamina.chat.validate import type_of
from llamina.errors import RequestError


class Tools:
    """Tools by name. `described` is the list in the form that chat templates take, `functions` the inner parts."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Raises RequestError for what is not a tool, and for two of one name."""
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
        """Return the JSON schema of a tool's arguments; that of an object without properties if it has none."""
        schema: dict[str, Any] = self.functions.get(name, {}).get("parameters") or {"type": "object", "properties": {}}
        return schema

    def property_names(self, name: str) -> list[str]:
        """Return the names of a tool's parameters."""
        return list(self.parameters(name).get("properties", {}))

    def types(self, name: str, parameter: str) -> set[str]:
        """Return the JSON types that a parameter may have; an empty set if the schema does not say."""
        schema = self.parameters(name).get("properties", {}).get(parameter)
        return _types(schema) if isinstance(schema, Mapping) else set()

    def loosened(self) -> "Tools":
        """Return the tools with only names and types left in their schemas, except those that are `strict`."""
        return Tools([tool if tool["function"].get("strict") else _loosened(tool) for tool in self.described])

    def only(self, name: str) -> "Tools":
        """Return the one tool of this name."""
        return Tools([tool for tool in self.described if tool["function"]["name"] == name])


def _loosened(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool["function"].get("parameters") or {}
    loose = {key: schema[key] for key in ("type", "required") if key in schema}
    inner = schema.get("properties", {})
    types = {key: {"type": of["type"]} if isinstance(of, Mapping) and "type" in of else {} for key, of in inner.items()}
    return {**tool, "function": {**tool["function"], "parameters": loose | {"properties": types}}}


def _described(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool in the form that templates take, from that form or from its inner part alone."""
    function = tool.get("function", tool if "name" in tool else None) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or tool.get("type", "function") != "function":
        expected = '{"type": "function", "function": {"name": …, "parameters": …}}'
        raise RequestError(f"{tool!r} is not a tool: must be {expected}", "tools")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"the name of a tool is {name!r}: must be a non-empty string", "tools")
    if not isinstance(function.get("parameters", {}), Mapping | None):
        raise RequestError(f"the parameters of {name} are {function['parameters']!r}: must be a JSON schema", "tools")
    if not isinstance((function.get("parameters") or {}).get("properties", {}), Mapping):
        raise RequestError(f"the properties of {name}'s parameters must be an object of JSON schemas", "tools")
    inner = {key: value for key, value in function.items() if key != "type"}
    return {"type": "function", "function": inner}


def _types(schema: Mapping[str, Any]) -> set[str]:
    if "enum" in schema and "type" not in schema:
        return {type_of(value) for value in schema["enum"]}
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else set(declared or ())
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key, ()):
            types |= _types(option) if isinstance(option, Mapping) else set()
    return types
