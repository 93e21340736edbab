"""The objects of OpenAI's API that are answered, as types: the OpenAPI document has their schemas."""

from typing import Generic, Literal, NotRequired, TypedDict, TypeVar


class Identified(TypedDict):
    id: str


Item = TypeVar("Item", bound=Identified)


class Listed(TypedDict, Generic[Item]):
    """A part of a list."""

    object: Literal["list"]
    data: list[Item]
    first_id: str
    last_id: str
    has_more: bool


class Deleted(TypedDict):
    id: str
    object: str
    deleted: Literal[True]


# ---- chats and completions -------------------------------------------------------------------------------


class PromptDetails(TypedDict):
    cached_tokens: int


class CompletionDetails(TypedDict):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class CompletionUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(TypedDict):
    """llama.cpp's, in milliseconds."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class PromptProgress(TypedDict):
    total: int
    processed: int


class TopLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[TokenLogprob]
    refusal: NotRequired[None]


class FunctionCall(TypedDict):
    name: str
    arguments: str


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    timings: Timings | None


class FunctionDelta(TypedDict):
    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """The first of a call has its id, type and name."""

    index: int
    id: NotRequired[str | None]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class ChatDelta(TypedDict, total=False):
    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[ToolCallDelta]


class ChunkChoice(TypedDict):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatCompletionChunk(TypedDict):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: NotRequired[CompletionUsage]
    timings: NotRequired[Timings | None]
    prompt_progress: NotRequired[PromptProgress]


class LegacyLogprobs(TypedDict):
    """A token that cannot be, and the first of a prompt, have none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class RankedLogprob(TypedDict):
    logprob: float
    rank: int | None
    decoded_token: str


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: str | None
    prompt_logprobs: NotRequired[list[dict[str, RankedLogprob] | None]]
    score: NotRequired[float]  # of a beam


class TextCompletion(TypedDict):
    """Whole, or a part of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: NotRequired[CompletionUsage]
    timings: NotRequired[Timings | None]
    prompt_progress: NotRequired[PromptProgress]


# ---- embeddings, transcriptions --------------------------------------------------------------------------


class PromptUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """Numbers, or their base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(TypedDict):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


class TranscriptUsage(TypedDict):
    type: Literal["tokens"]
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: PromptDetails


class TranscriptDone(TypedDict):
    type: Literal["transcript.text.done"]
    text: str
    usage: TranscriptUsage


class TranscriptDelta(TypedDict):
    type: Literal["transcript.text.delta"]
    delta: str


# ---- models and files ------------------------------------------------------------------------------------


class Progress(TypedDict):
    stage: str
    done: int
    total: int


class ModelMeta(TypedDict):
    """Most of it is told of a loaded model only."""

    status: str
    aliases: list[str]
    progress: NotRequired[Progress]
    error: NotRequired[str]
    n_ctx: NotRequired[int]
    n_vocab: NotRequired[int]
    n_params: NotRequired[int]
    size: NotRequired[int]
    n_ctx_train: NotRequired[int]
    n_embd: NotRequired[int]
    memory: NotRequired[int]
    requests: NotRequired[int]
    idle_seconds_left: NotRequired[float | None]
    device: NotRequired[str]


class Modalities(TypedDict):
    input_modalities: list[Literal["text", "image", "audio"]]
    output_modalities: list[Literal["text"]]


class Model(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["llamina"]
    meta: ModelMeta
    architecture: NotRequired[Modalities]  # once it is loaded


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[Model]


class File(TypedDict):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]
    status_details: None
