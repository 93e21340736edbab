"""The objects of the Responses and Conversations APIs that are answered, as types."""

from typing import Any, Literal, NotRequired, TypedDict

from llamina.server.openai.schema import PromptDetails, TokenLogprob


class SoundData(TypedDict):
    data: str
    format: str


class ContentPart(TypedDict):
    """A text, a picture or a sound."""

    type: Literal["input_text", "output_text", "reasoning_text", "summary_text", "input_image", "input_audio"]
    text: NotRequired[str]
    annotations: NotRequired[list[Any]]
    logprobs: NotRequired[list[TokenLogprob]]
    image_url: NotRequired[str]
    detail: NotRequired[str]
    input_audio: NotRequired[SoundData]


class ItemObject(TypedDict):
    """A message, a call, its output, or reasoning."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"]
    id: str
    status: Literal["in_progress", "completed", "incomplete"]
    role: NotRequired[Literal["user", "assistant", "system", "developer"]]
    content: NotRequired[list[ContentPart]]
    phase: NotRequired[Literal["commentary", "final_answer"]]
    call_id: NotRequired[str]
    name: NotRequired[Any]  # of an output, as it was given; so are the next two
    namespace: NotRequired[Any]
    caller: NotRequired[Any]
    arguments: NotRequired[str]
    output: NotRequired[str | list[ContentPart]]
    summary: NotRequired[list[ContentPart]]
    encrypted_content: NotRequired[str | None]


class ResponseError(TypedDict):
    code: Literal["invalid_prompt", "server_error", "rate_limit_exceeded"]
    message: str


class IncompleteDetails(TypedDict):
    reason: Literal["max_output_tokens"]


class ConversationOf(TypedDict):
    id: str


class ReasoningOf(TypedDict):
    effort: str | None
    summary: None


class FormatOf(TypedDict):
    type: Literal["text", "json_object", "json_schema"]
    name: NotRequired[str | None]
    description: NotRequired[str | None]
    schema: NotRequired[dict[str, Any] | bool | None]
    strict: NotRequired[bool]


class TextOf(TypedDict):
    format: FormatOf
    verbosity: Literal["low", "medium", "high"]


class FunctionTool(TypedDict):
    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool


class InputDetails(PromptDetails):
    cache_write_tokens: int


class OutputDetails(TypedDict):
    reasoning_tokens: int


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class SamplingOf(TypedDict):
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float


class ResponseObject(SamplingOf):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: str
    background: bool
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[ItemObject]
    parallel_tool_calls: bool
    previous_response_id: str | None
    conversation: ConversationOf | None
    prompt_cache_key: str | None
    reasoning: ReasoningOf
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    text: TextOf
    tool_choice: str | dict[str, Any]
    tools: list[FunctionTool]
    top_logprobs: int
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None
    metadata: dict[str, str]


class EventError(TypedDict):
    type: str
    code: str | None
    message: str
    param: str | None


class ResponseEvent(TypedDict):
    """An event; its type says which of the fields it has."""

    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "error",
    ]
    sequence_number: int
    response: NotRequired[ResponseObject]
    output_index: NotRequired[int]
    content_index: NotRequired[int]
    item_id: NotRequired[str]
    item: NotRequired[ItemObject]
    part: NotRequired[ContentPart]
    delta: NotRequired[str]
    text: NotRequired[str]
    logprobs: NotRequired[list[TokenLogprob]]
    name: NotRequired[str]
    arguments: NotRequired[str]
    code: NotRequired[str | None]
    message: NotRequired[str]
    param: NotRequired[str | None]
    error: NotRequired[EventError]


class InputTokens(TypedDict):
    object: Literal["response.input_tokens"]
    input_tokens: int


class Conversation(TypedDict):
    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]
