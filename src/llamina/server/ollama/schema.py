"""Ollama's objects that are answered, as types. Durations are in nanoseconds."""

from typing import Any, Literal, NotRequired, TypedDict

from llamina.server.http import RawObject
from llamina.server.openai.schema import Progress


class TokenLogprob(TypedDict):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: NotRequired[list["TokenLogprob"]]


class Head(TypedDict):
    """Of a line, or of a whole answer; the last has the reason and the counts."""

    model: str
    created_at: str
    done: bool
    done_reason: NotRequired[str]
    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[int]
    eval_duration: NotRequired[int]
    logprobs: NotRequired[list[TokenLogprob]]


class Function(TypedDict):
    index: int
    name: str
    arguments: RawObject


class Call(TypedDict):
    id: str
    function: Function


class AnswerMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[Call]]


class ChatContent(TypedDict):
    message: AnswerMessage


class ChatLine(Head, ChatContent):
    """A line of a chat, or all of its answer."""


class GenerateContent(TypedDict):
    response: str
    thinking: NotRequired[str]
    context: NotRequired[list[int]]


class GenerateLine(Head, GenerateContent):
    """A line of a generation, or all of it."""


class StatusLine(TypedDict):
    status: str
    digest: NotRequired[str]
    total: NotRequired[int]
    completed: NotRequired[int]


class EmbedAnswer(TypedDict):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class EmbeddingAnswer(TypedDict):
    embedding: list[float]


class Details(TypedDict):
    parent_model: str
    format: Literal["gguf"]
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: NotRequired[int]
    embedding_length: NotRequired[int]


class Named(TypedDict):
    name: str
    model: str
    digest: str
    details: Details


class Tag(Named):
    modified_at: str
    size: int
    capabilities: list[str]


class Tags(TypedDict):
    models: list[Tag]


class RunningModel(Named):
    loading: NotRequired[Progress | None]
    size: int
    size_vram: int
    context_length: int
    expires_at: str


class Running(TypedDict):
    models: list[RunningModel]


class SaidMessage(TypedDict):
    role: str
    content: str


class TensorInfo(TypedDict):
    name: str
    type: str
    shape: list[int]


class Shown(TypedDict):
    modelfile: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    license: NotRequired[str]
    parameters: NotRequired[str]
    system: NotRequired[str]
    messages: NotRequired[list[SaidMessage]]
    tensors: NotRequired[list[TensorInfo]]


class Version(TypedDict):
    version: str
