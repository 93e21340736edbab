"""What `/v1/messages` and `/v1/messages/count_tokens` are asked, as options of the engine."""

from typing import Any, Literal

import msgspec

from llamina.server.anthropic.blocks import CacheControl, Message, Text
from llamina.server.anthropic.conversation import Conversation, conversation
from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.openai.sampling import check_limits
from llamina.server.tools import check_count, read_schema

LEAST_BUDGET = 1024  # of thinking, as in Anthropic's API
FINE_GRAINED = "fine-grained-tool-streaming"  # a beta, by the beginning of its name
CLIENT_TOOLS = ("bash_", "text_editor_", "computer_", "memory_")  # types that clients run, by their beginnings


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """A tool that the client runs."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    input_examples: list[dict[str, Any]] | None = None
    cache_control: CacheControl | None = None
    eager_input_streaming: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None

    def function(self) -> dict[str, Any]:
        """The tool as chat templates take it."""
        parts = [
            self.description or "",
            *(f"Example: {msgspec.json.encode(x).decode()}" for x in self.input_examples or ()),
        ]
        function = {"name": self.name, "description": "\n".join(filter(None, parts)), "parameters": self.input_schema}
        return {"type": "function", "function": function | ({"strict": True} if self.strict else {})}


class ToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class ThinkingConfig(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Metadata(msgspec.Struct, forbid_unknown_fields=True):
    user_id: str | None = None


class CountRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What makes the prompt. Fields that a local model has no use for are accepted if they ask nothing."""

    messages: list[Message]
    model: str
    system: str | list[Text] = ""
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None  # its name in older betas
    cache_control: CacheControl | None = None
    betas: list[str] | None = None
    speed: Literal["standard", "fast"] | None = None
    context_management: dict[str, Any] | None = None
    mcp_servers: list[dict[str, Any]] | None = None

    def conversation(self, limits: Limits) -> Conversation:
        """The messages and how the answer begins. Raises ApiError for what cannot be read."""
        found = conversation(self.system, self.messages, limits.messages)
        if found.prefill and self.thinks:
            message = (
                "the last message is the assistant's, and thinking is enabled: an answer that is begun cannot think"
            )
            raise ApiError(400, message, param="messages")
        return found

    @property
    def thinks(self) -> bool | None:
        """Whether thinking is asked for; None: as the model's template has it."""
        if self.thinking is None:
            return None
        return self.thinking.type != "disabled"

    @property
    def omits_thinking(self) -> bool:
        return self.thinking is not None and self.thinking.display == "omitted"

    @property
    def one_call(self) -> bool:
        """Whether the answer may call one tool only."""
        return self.tool_choice is not None and self.tool_choice.disable_parallel_tool_use

    def prompt_options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options that make the prompt and the form of the answer. Raises ApiError."""
        self._check()
        given: dict[str, Any] = {}
        if self.tools:
            check_count(self.tools, limits)
            given["tools"] = [_tool(tool, i).function() for i, tool in enumerate(self.tools) if not _is_run_by_us(tool)]
        if self.tool_choice is not None:
            given["tool_choice"] = _choice(self.tool_choice)
            given["parallel_tool_calls"] = self.tool_choice.type == "any" and not self.one_call
        config, template = self.output_config or OutputConfig(), dict[str, Any]()
        if self.thinks is not None:
            template["enable_thinking"] = self.thinks
        if self.messages and self.messages[-1].role == "assistant":
            template["enable_thinking"] = False
        if config.effort is not None:
            template["reasoning_effort"] = config.effort
        if template:
            given["template_options"] = template
        if (format := config.format or self.output_format) is not None:
            if self.tools and given.get("tool_choice") != "none":
                message = "a format and tools are given: an answer that follows a schema calls no tools, so choose none"
                raise ApiError(400, message, param="tool_choice")
            given["json_schema"] = format.schema
        check_limits(given, limits)
        return given

    @property
    def warnings(self) -> list[str]:
        """Tools that are left out, since a server would run them and this one does not."""
        kinds = dict.fromkeys(str(tool["type"]) for tool in self.tools or () if _is_run_by_us(tool))
        return [f"{kind} is left out of the tools: this server runs none" for kind in kinds]

    def eager_tools(self, betas: str) -> set[str]:
        """The names of tools whose arguments are streamed as they are made: of some tools, or of all by a beta."""
        everything = FINE_GRAINED in betas or any(FINE_GRAINED in beta for beta in self.betas or ())
        return {tool.get("name", "") for tool in self.tools or () if tool.get("eager_input_streaming", everything)}

    def _check(self) -> None:
        """Raise ApiError for what is asked and not done."""
        if self.speed == "fast":
            raise ApiError(400, "speed is fast: this server has one speed, standard", param="speed")
        if self.mcp_servers:
            raise ApiError(400, "mcp_servers are given: this server connects to none", param="mcp_servers")
        for edit in (self.context_management or {}).get("edits") or ():
            if not isinstance(edit, dict) or edit.get("type") != "clear_thinking_20251015" or edit.get("keep") != "all":
                message = f"context_management asks for {edit!r}: this server drops nothing of a conversation"
                raise ApiError(400, message, param="context_management.edits")
        if self.thinking is not None and self.thinking.type == "between_tools":
            message = "thinking.type is between_tools: must be enabled, adaptive or disabled"
            raise ApiError(400, message, param="thinking.type")


class MessagesRequest(CountRequest, kw_only=True, forbid_unknown_fields=True):
    """What is answered with a message."""

    max_tokens: int
    stream: bool = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    container: Any = None
    inference_geo: str | None = None
    diagnostics: dict[str, Any] | None = None

    def options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what is out of range, over a limit or not done."""
        given = self.prompt_options(limits)
        for name in ("container", "inference_geo", "diagnostics"):
            if getattr(self, name) is not None:
                raise ApiError(400, f"{name} is given: this server has nothing of the kind", param=name)
        if self.max_tokens < 0:
            raise ApiError(400, f"max_tokens is {self.max_tokens}: must be at least 0", param="max_tokens")
        given["max_tokens"] = max(self.max_tokens, 1)  # with 0 the prompt is computed, and the token is not told
        if (budget := self._budget()) is not None:
            given["reasoning_budget"] = budget
        for name in ("temperature", "top_p", "top_k"):
            if (value := getattr(self, name)) is not None:
                given[name] = value
        if self.stop_sequences:
            given["stop"] = self.stop_sequences
        check_limits(given, limits)
        return given

    def _budget(self) -> int | None:
        """Tokens of thinking, in the range of Anthropic's API: at least 1024 and less than max_tokens."""
        if self.thinking is None or self.thinking.type != "enabled":
            return None
        budget = self.thinking.budget_tokens
        if budget is None or not LEAST_BUDGET <= budget < self.max_tokens:
            expected = f"must be at least {LEAST_BUDGET} and less than max_tokens, which is {self.max_tokens}"
            raise ApiError(400, f"thinking.budget_tokens is {budget}: {expected}", param="thinking.budget_tokens")
        return budget


def _is_run_by_us(tool: dict[str, Any]) -> bool:
    """Whether a tool is of a type that Anthropic's servers run, such as web_search_20250305."""
    kind = tool.get("type")
    return isinstance(kind, str) and kind != "custom" and not kind.startswith(CLIENT_TOOLS)


def _tool(given: dict[str, Any], i: int) -> Tool:
    kind = given.get("type")
    if kind not in (None, "custom"):
        message = f"tools[{i}] is of type {kind!r}, which this server does not have: give a tool with an input_schema"
        raise ApiError(400, message, param=f"tools[{i}].type")
    try:
        tool = msgspec.convert(given, Tool)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"tools[{i}]: {error}", param=f"tools[{i}]") from error
    tool.input_schema = read_schema(tool.input_schema, f"tools[{i}].input_schema")
    if tool.defer_loading:
        raise ApiError(400, f"tools[{i}] defers loading: no tool search is here to load it", param=f"tools[{i}]")
    if tool.allowed_callers is not None and "direct" not in tool.allowed_callers:
        raise ApiError(400, f"tools[{i}] may not be called directly, and nothing else calls it", param=f"tools[{i}]")
    return tool


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    """As the engine has it."""
    if choice.type != "tool":
        return {"auto": "auto", "any": "required", "none": "none"}[choice.type]
    if choice.name is None:
        raise ApiError(400, "tool_choice is a tool and has no name", param="tool_choice.name")
    return {"type": "function", "function": {"name": choice.name}}
