"""The objects of the Assistants API that are answered, as types."""

from typing import Any, Literal, NotRequired, TypedDict

from llamina.server.openai.schema import ToolCall


class Assistant(TypedDict):
    id: str
    object: Literal["assistant"]
    created_at: int
    model: str
    name: str | None
    description: str | None
    instructions: str | None
    tools: list[dict[str, Any]]
    tool_resources: dict[str, Any]
    metadata: dict[str, str]
    temperature: float | None
    top_p: float | None
    response_format: str | dict[str, Any]
    reasoning_effort: NotRequired[str]


class Thread(TypedDict):
    id: str
    object: Literal["thread"]
    created_at: int
    metadata: dict[str, str]
    tool_resources: dict[str, Any]


class TextValue(TypedDict):
    value: str
    annotations: list[Any]


class PictureAddress(TypedDict):
    url: str
    detail: str


class PictureFile(TypedDict):
    file_id: str
    detail: str


class MessagePart(TypedDict):
    type: Literal["text", "image_url", "image_file"]
    text: NotRequired[TextValue]
    image_url: NotRequired[PictureAddress]
    image_file: NotRequired[PictureFile]


class Reason(TypedDict):
    reason: str


class ThreadMessage(TypedDict):
    id: str
    object: Literal["thread.message"]
    created_at: int
    thread_id: str
    status: Literal["in_progress", "completed", "incomplete"]
    incomplete_details: Reason | None
    completed_at: int | None
    incomplete_at: int | None
    role: Literal["user", "assistant"]
    content: list[MessagePart]
    assistant_id: str | None
    run_id: str | None
    attachments: list[Any]
    metadata: dict[str, str]


class RunUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class LastError(TypedDict):
    code: str
    message: str


class WantedCalls(TypedDict):
    tool_calls: list[ToolCall]


class RequiredAction(TypedDict):
    type: Literal["submit_tool_outputs"]
    submit_tool_outputs: WantedCalls


class TruncationStrategy(TypedDict):
    type: Literal["auto", "last_messages"]
    last_messages: int | None


class Run(TypedDict):
    id: str
    object: Literal["thread.run"]
    created_at: int
    assistant_id: str
    thread_id: str
    status: str
    started_at: int | None
    expires_at: int | None
    cancelled_at: int | None
    failed_at: int | None
    completed_at: int | None
    required_action: RequiredAction | None
    last_error: LastError | None
    incomplete_details: Reason | None
    model: str
    instructions: str
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    metadata: dict[str, str]
    temperature: float | None
    top_p: float | None
    max_completion_tokens: int | None
    max_prompt_tokens: int | None
    truncation_strategy: TruncationStrategy
    response_format: str | dict[str, Any]
    usage: RunUsage | None
    reasoning_effort: NotRequired[str]


class CalledFunction(TypedDict):
    name: str
    arguments: str
    output: str | None


class StepCall(TypedDict):
    index: NotRequired[int]  # in the delta of a stream
    id: str
    type: Literal["function"]
    function: CalledFunction


class MessageCreation(TypedDict):
    message_id: str


class StepDetails(TypedDict):
    type: Literal["message_creation", "tool_calls"]
    message_creation: NotRequired[MessageCreation]
    tool_calls: NotRequired[list[StepCall]]


class RunStep(TypedDict):
    id: str
    object: Literal["thread.run.step"]
    created_at: int
    run_id: str
    assistant_id: str
    thread_id: str
    type: Literal["message_creation", "tool_calls"]
    status: str
    cancelled_at: int | None
    completed_at: int | None
    expired_at: int | None
    failed_at: int | None
    last_error: LastError | None
    step_details: StepDetails
    metadata: dict[str, str]
    usage: RunUsage | None


class TextDelta(TypedDict):
    index: int
    type: Literal["text"]
    text: TextValue


class MessageDelta(TypedDict):
    content: list[TextDelta]


class ThreadMessageDelta(TypedDict):
    id: str
    object: Literal["thread.message.delta"]
    delta: MessageDelta


class StepDelta(TypedDict):
    step_details: StepDetails


class RunStepDelta(TypedDict):
    id: str
    object: Literal["thread.run.step.delta"]
    delta: StepDelta


RunEvent = Thread | Run | RunStep | ThreadMessage | ThreadMessageDelta | RunStepDelta
