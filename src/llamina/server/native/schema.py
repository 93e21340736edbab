"""What llama.cpp's and vLLM's own endpoints answer, as types."""

from typing import Any, Literal, NotRequired, TypedDict

from llamina.server.openai.schema import PromptUsage, Timings


class TokenProbability(TypedDict):
    id: int
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: NotRequired[list["TokenProbability"]]


class PromptProgress(TypedDict):
    total: int
    cache: int
    processed: int
    time_ms: int


class NativeCompletion(TypedDict, total=False):
    """An answer, or a part of its stream. With `response_fields` it has those alone, "a/b" for b of a."""

    index: int
    content: str
    tokens: list[int]
    id_slot: int
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: dict[str, Any]
    prompt: str
    has_new_line: bool
    truncated: bool
    stop_type: Literal["word", "limit", "eos"]
    stopping_word: str
    tokens_cached: int
    timings: Timings | None
    completion_probabilities: list[TokenProbability]
    prompt_progress: PromptProgress


class NativeEmbedding(TypedDict):
    index: int
    embedding: list[list[float]]


class AdapterScale(TypedDict):
    id: int
    name: str
    path: str
    scale: float


class Success(TypedDict):
    success: Literal[True]


class DefaultSettings(TypedDict):
    params: dict[str, Any]
    n_ctx: int


class Modalities(TypedDict):
    vision: bool
    video: bool
    audio: bool


class Props(TypedDict):
    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_path: str
    modalities: Modalities
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool


class NextToken(TypedDict):
    has_next_token: bool
    has_new_line: bool
    n_remain: int
    n_decoded: int


class Slot(TypedDict):
    """Most of it is told of one that does something, or did."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: NotRequired[int]
    n_prompt_tokens: NotRequired[int]
    n_prompt_tokens_processed: NotRequired[int]
    n_prompt_tokens_cache: NotRequired[int]
    params: NotRequired[dict[str, Any]]
    next_token: NotRequired[list[NextToken]]


class SlotTimings(TypedDict, total=False):
    save_ms: float
    restore_ms: float


class SlotAction(TypedDict):
    """What was saved, restored or erased."""

    id_slot: int
    filename: NotRequired[str]
    n_saved: NotRequired[int]
    n_written: NotRequired[int]
    n_restored: NotRequired[int]
    n_read: NotRequired[int]
    n_erased: NotRequired[int]
    timings: NotRequired[SlotTimings]


class Document(TypedDict):
    text: str


class Ranked(TypedDict):
    index: int
    relevance_score: float
    document: NotRequired[Document]


class Rerank(TypedDict):
    id: str
    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: PromptUsage


class Score(TypedDict):
    index: int
    object: Literal["score"]
    score: float


class ScoreUsage(PromptUsage):
    completion_tokens: int


class Scores(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: ScoreUsage


class TokenPiece(TypedDict):
    """A piece that is no text is told by its bytes."""

    id: int
    piece: str | list[int]


class Tokens(TypedDict):
    tokens: list[int | TokenPiece]


class CountedTokens(TypedDict):
    """As vLLM answers."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(TypedDict):
    content: str
    prompt: str


class Prompt(TypedDict):
    prompt: str


class TokenizerInfo(TypedDict):
    tokenizer_class: str
    bos_token: str | None
    eos_token: str | None
    pad_token: None
    chat_template: str | None
    model_max_length: int
