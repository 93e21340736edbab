"""The body of `POST /v1/responses`, and the engine's options that it comes to."""

from typing import Any, Literal

import msgspec

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.openai.responses.tools import Offer, offer
from llamina.server.openai.sampling import SamplingFields, check_limits

LONGEST_KEY = 64  # characters of ids, of metadata's keys, of the keys that tell users apart
LONGEST_VALUE = 512  # characters of metadata's values
MOST_METADATA = 16
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"

Include = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    # of tools and inputs that there are none of here: nothing is left out
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]
Summary = Literal["auto", "concise", "detailed"]


class TextFormat(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | bool | None = None
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct, forbid_unknown_fields=True):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(msgspec.Struct, forbid_unknown_fields=True):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class ConversationId(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class ResponseRequest(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request with extensions. Fields that a local model has no use for are accepted if they ask nothing."""

    input: str | list[dict[str, Any]] | None = None
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationId | None = None
    store: bool | None = None
    background: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None  # of tools that a server runs itself: there are none
    max_output_tokens: int | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    include: list[Include] | None = None
    top_logprobs: int | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    safety_identifier: str | None = None
    client_metadata: dict[str, Any] | None = None  # what coding agents tell of themselves
    prompt: dict[str, Any] | None = None
    moderation: dict[str, Any] | None = None
    context_management: list[dict[str, Any]] | None = None
    # extensions
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def keeps(self) -> bool:
        return self.store is not False

    @property
    def wants_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ()) or bool(self.top_logprobs)

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationId) else self.conversation

    @property
    def calls_in_parallel(self) -> bool:
        """Whether an answer may call several tools. One that must call any calls one, unless told otherwise."""
        return (
            self.tool_choice in (None, "auto", "none") if self.parallel_tool_calls is None else self.parallel_tool_calls
        )

    def offered(self, limits: Limits) -> Offer:
        """The tools that the model is told of, and the choice it has. Raises ApiError."""
        return offer(self.tools or [], self.tool_choice, limits)

    def check(self, limits: Limits) -> None:
        """Raise ApiError for what cannot be done, or is out of its range."""
        for name in ("prompt", "moderation", "context_management"):
            if getattr(self, name):
                raise ApiError(400, f"{name} is not supported: leave it out", param=name)
        if self.n not in (None, 1):
            raise ApiError(400, f"n is {self.n}: a response has one answer", param="n")
        if self.return_progress:
            raise ApiError(400, "return_progress is for /v1/chat/completions: leave it out", param="return_progress")
        if self.previous_response_id is not None and self.conversation is not None:
            message = "previous_response_id and conversation are both given: give one of them"
            raise ApiError(400, message, param="previous_response_id")
        if self.background and not self.keeps:
            raise ApiError(400, "a response in the background is kept: it needs store=true", param="background")
        if self.conversation is not None and not self.keeps:
            raise ApiError(400, "a conversation keeps its responses: it needs store=true", param="conversation")
        for name, least, most in (
            ("max_output_tokens", 1, None),
            ("max_tool_calls", 1, None),
            ("top_logprobs", 0, limits.top_logprobs),
        ):
            value = getattr(self, name)
            if value is not None and (value < least or (most is not None and value > most)):
                expected = f"at least {least}" if most is None else f"from {least} to {most}"
                raise ApiError(400, f"{name} is {value}: must be {expected}", param=name)
        for name in ("prompt_cache_key", "safety_identifier"):
            if len(getattr(self, name) or "") > LONGEST_KEY:
                raise ApiError(400, f"{name} is longer than {LONGEST_KEY} characters", param=name)
        check_metadata(self.metadata)

    def warnings(self) -> list[str]:
        """What is asked for and not done, though it is no mistake to ask."""
        found = []
        thinks = self.reasoning or Reasoning()
        if thinks.summary or thinks.generate_summary:
            found.append("reasoning is not summarized: its whole text is in content")
        if ENCRYPTED in (self.include or ()):
            found.append("reasoning is not encrypted: its text is in content")
        if self.text is not None and self.text.verbosity in ("low", "high"):
            found.append(f"text.verbosity {self.text.verbosity} is not known to the model")
        if self.stream_options is not None and self.stream_options.include_obfuscation:
            found.append("streams are not obfuscated")
        return found

    def engine_options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what cannot be done."""
        given = {"max_tokens": None, **self.options(limits)}  # as long as the context has room, as OpenAI's
        if self.max_output_tokens is not None:
            if self.max_tokens not in (None, self.max_output_tokens):
                raise ApiError(400, "max_tokens and max_output_tokens are both given, and differ", param="max_tokens")
            given["max_tokens"] = self.max_output_tokens
        if self.truncation == "auto":
            given["truncate"] = True
        tools = self.offered(limits)
        if tools.functions:
            given["tools"] = tools.functions
            given["parallel_tool_calls"] = self.calls_in_parallel
        given["tool_choice"] = tools.choice
        if self.wants_logprobs:
            given["logprobs"] = self.top_logprobs or 0
        template = dict(self.chat_template_kwargs or {})
        if self.reasoning is not None and self.reasoning.effort is not None:
            template.setdefault("reasoning_effort", self.reasoning.effort)
            template.setdefault("enable_thinking", self.reasoning.effort not in ("none", "minimal"))
        if template:
            given["template_options"] = template
        return given | self._constraint(limits)

    def _constraint(self, limits: Limits) -> dict[str, Any]:
        """The grammar that a format of the text asks for."""
        format = self.text.format if self.text is not None else None
        if format is None or format.type == "text":
            return {}
        if format.type == "json_object":
            return {"json_schema": {"type": "object"}}
        if format.schema is None or not format.name:
            missing = "schema" if format.name else "name"
            raise ApiError(400, f"text.format is json_schema and has no {missing}", param=f"text.format.{missing}")
        check_limits({"json_schema": format.schema}, limits)
        return {"json_schema": format.schema}


def check_metadata(metadata: dict[str, str] | None) -> None:
    """Raise ApiError for more, or longer, metadata than an object may have."""
    given = metadata or {}
    if len(given) > MOST_METADATA:
        raise ApiError(400, f"metadata has {len(given)} keys: {MOST_METADATA} are allowed", param="metadata")
    for key, value in given.items():
        if not 0 < len(key) <= LONGEST_KEY:
            message = f"a key of metadata has {len(key)} characters: must be 1 to {LONGEST_KEY}"
            raise ApiError(400, message, param="metadata")
        if len(value) > LONGEST_VALUE:
            message = f"metadata.{key} has {len(value)} characters: {LONGEST_VALUE} are allowed"
            raise ApiError(400, message, param=f"metadata.{key}")
