"""The tools of a request: functions are offered to the model, other types are left out and named in a warning."""

from dataclasses import dataclass, field
from typing import Any

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.openai.responses.known import FUNCTION, check_known
from llamina.server.openai.responses.schema import FunctionTool
from llamina.server.tools import check_count, read_schema

CHOICES = ("auto", "none", "required")


@dataclass
class Offer:
    """`functions` and `choice` are as the engine takes them, `shown` the tools as a response has them."""

    functions: list[dict[str, Any]] = field(default_factory=list)
    shown: list[FunctionTool] = field(default_factory=list)
    choice: str | dict[str, Any] = "auto"
    left_out: list[str] = field(default_factory=list)  # types of tools that are not functions
    warnings: list[str] = field(default_factory=list)  # what is asked of functions and not done


def offer(tools: list[dict[str, Any]], choice: str | dict[str, Any] | None, limits: Limits) -> Offer:
    """What the model is offered. Raises ApiError for a tool that is none, and for a choice that cannot be met."""
    check_count(tools, limits)
    found = Offer()
    for i, tool in enumerate(tools):
        kind = tool.get("type")
        if not isinstance(kind, str):
            raise ApiError(400, f"tools[{i}] has no type: must be function, or another", param=f"tools[{i}].type")
        if kind == "function":
            found.shown.append(_function(tool, f"tools[{i}]"))
            found.warnings += _not_done(tool)
        elif kind not in found.left_out:
            found.left_out.append(kind)
    names = [tool["name"] for tool in found.shown]
    allowed, found.choice = _choice(choice, names)
    found.functions = [_engine_tool(tool) for tool in found.shown if tool["name"] in allowed]
    if found.choice == "required" and not found.functions:
        others = f": {', '.join(found.left_out)} are not run here" if found.left_out else ""
        message = f"tool_choice requires a tool, and there is no function among the tools{others}"
        raise ApiError(400, message, param="tool_choice")
    return found


def _not_done(tool: dict[str, Any]) -> list[str]:
    """What a function asks for beside being offered: there is no search of tools here, and no program calls them."""
    found = []
    if tool.get("defer_loading"):
        found.append(f"{tool['name']} is offered at once: defer_loading needs a tool search")
    if tool.get("output_schema"):
        found.append(f"the model is not told the output_schema of {tool['name']}")
    return found


def _function(tool: dict[str, Any], path: str) -> FunctionTool:
    check_known(tool, FUNCTION, path)
    name, parameters = tool.get("name"), tool.get("parameters")
    if not isinstance(name, str) or not name:
        raise ApiError(400, f"{path}.name is {name!r}: must be a name", param=f"{path}.name")
    if not isinstance(parameters, dict | None):
        raise ApiError(400, f"{path}.parameters must be a JSON schema", param=f"{path}.parameters")
    callers = tool.get("allowed_callers")
    if callers is not None and not (isinstance(callers, list) and "direct" in callers):
        message = f"{path}.allowed_callers is {callers!r}: must have direct, since nobody but the model calls"
        raise ApiError(400, message, param=f"{path}.allowed_callers")
    for key, kind in (("description", str), ("strict", bool)):
        if not isinstance(tool.get(key), kind | None):
            raise ApiError(400, f"{path}.{key} is {tool[key]!r}: must be a {kind.__name__}", param=f"{path}.{key}")
    return {
        "type": "function",
        "name": name,
        "description": tool.get("description"),
        "parameters": read_schema(parameters, f"{path}.parameters") if parameters is not None else None,
        "strict": bool(tool.get("strict")),
    }


def _engine_tool(tool: FunctionTool) -> dict[str, Any]:
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


def _choice(choice: str | dict[str, Any] | None, names: list[str]) -> tuple[list[str], str | dict[str, Any]]:
    """The names that may be called, and the choice as the engine takes it."""
    if choice is None or isinstance(choice, str):
        if choice is not None and choice not in CHOICES:
            expected = "auto, none, required or an object"
            raise ApiError(400, f"tool_choice is {choice!r}: must be {expected}", param="tool_choice")
        return names, choice or "auto"
    kind = choice.get("type")
    if kind == "function":
        _known(choice, names, "tool_choice")
        return names, {"type": "function", "function": {"name": choice["name"]}}
    if kind == "allowed_tools":
        return _allowed(choice, names)
    message = f"tool_choice asks for {kind!r}, which is not run here: only functions can be required"
    raise ApiError(400, message, param="tool_choice")


def _allowed(choice: dict[str, Any], names: list[str]) -> tuple[list[str], str]:
    mode, tools = choice.get("mode", "auto"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise ApiError(400, f"tool_choice.mode is {mode!r}: must be auto or required", param="tool_choice.mode")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ApiError(400, "tool_choice.tools must be a list of tools", param="tool_choice.tools")
    functions = [tool for tool in tools if tool.get("type") == "function"]
    for i, tool in enumerate(functions):
        _known(tool, names, f"tool_choice.tools[{i}]")
    return [tool["name"] for tool in functions], mode


def _known(tool: dict[str, Any], names: list[str], path: str) -> None:
    if tool.get("name") not in names:
        known = ", ".join(names) or "none"
        message = f"{path}.name is {tool.get('name')!r}: the functions among the tools are {known}"
        raise ApiError(400, message, param=f"{path}.name")
