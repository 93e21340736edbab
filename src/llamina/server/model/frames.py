"""What a server and a model's worker say to each other: msgpack frames, one per engine step for all streams."""

from typing import Any

import msgspec

from llamina.errors import LlaminaError, RequestError
from llamina.server.mistake import where


class Frame(msgspec.Struct, tag=True, omit_defaults=True, frozen=True):
    """Anything that is sent."""


# ---- to the model ----------------------------------------------------------------------------------------


class Generate(Frame, frozen=True):
    """Continue a prompt (text or token ids) or answer a conversation; `options` are those of `Engine.stream_chat`.

    With both, the prompt's tokens come before the conversation's. `prefill` is text that the answer to a conversation
    begins with; it is not repeated in the chunks. `n` answers share the prompt's computation; their chunks are told
    apart by `index`.
    """

    id: int
    prompt: str | list[int] | None = None
    messages: list[dict[str, Any]] | None = None
    options: dict[str, Any] = {}
    n: int = 1
    prefill: str = ""
    tell_prompt: bool = False  # whether the last chunk has the prompt's tokens
    suffix: str = ""  # text that follows the answer to a prompt: see `infill.py`
    slot: int = -1  # where it is listed while it runs and remembered afterwards (see `slots.py`); -1: any


class Cancel(Frame, frozen=True):
    """Nothing more is computed for a `Generate` or a `Call`."""

    id: int


class Call(Frame, frozen=True):
    """Any other verb (see `verbs.py`): one result."""

    id: int
    verb: str
    params: dict[str, Any] = {}
    salt: str = ""  # of the prefixes in the KV cache that it may share


# ---- from the model --------------------------------------------------------------------------------------


class Logprob(msgspec.Struct, omit_defaults=True, frozen=True):
    """A token with its log-probability and the likeliest tokens in its place."""

    token: int
    bytes: bytes
    logprob: float
    top: list["Logprob"] = []


class CallDelta(msgspec.Struct, omit_defaults=True, frozen=True):
    """News of a tool call: it begins (id and name), has more arguments, or turns out to be none."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    dropped: bool = False


class Usage(msgspec.Struct, omit_defaults=True, frozen=True):
    """Token counts and where the time went, in seconds."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prompt_seconds: float = 0.0
    completion_seconds: float = 0.0


class ErrorInfo(msgspec.Struct, omit_defaults=True, frozen=True):
    """An error of the model's process: `kind` is the class of `llamina.errors`, or "Internal"."""

    kind: str
    message: str
    param: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> "ErrorInfo":
        if isinstance(error, LlaminaError):
            param = error.param if isinstance(error, RequestError) else None
            return cls(type(error).__name__, str(error), param)
        return cls("Internal", where(error))


class Chunk(msgspec.Struct, omit_defaults=True, frozen=True):
    """What a step did for one answer. The last chunk of an answer has a finish reason, or an error."""

    id: int
    index: int = 0
    text: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = []
    tokens: list[int] = []
    logprobs: list[Logprob | None] | None = None
    computed: int = 0  # tokens in the KV cache
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, from the prefix cache
    finish_reason: str | None = None  # stop, length, cancelled, error
    # only in the last chunk of an answer:
    usage: Usage | None = None
    seed: int | None = None
    prompt_logprobs: list[Logprob | None] | None = None
    prompt_start: bytes = b""  # with them, the bytes of the prompt's first token, which has no log-probability
    stop: str | None = None  # the stop string that ended it
    prompt: list[int] | None = None  # if `tell_prompt`
    slot: int = 0
    error: ErrorInfo | None = None


class Chunks(Frame, frozen=True):
    """All that one step brought."""

    chunks: list[Chunk]


class Result(Frame, frozen=True):
    """What a `Call` returns."""

    id: int
    value: Any = None


class Failed(Frame, frozen=True):
    """A `Generate` or a `Call` that could not be begun or done."""

    id: int
    error: ErrorInfo


class Loading(Frame, frozen=True):
    """How far a model is loaded."""

    stage: str
    done: int
    total: int


class ModelInfo(msgspec.Struct, omit_defaults=True, frozen=True):
    """What a server needs to know of a loaded model."""

    path: str
    architecture: str
    name: str
    context: int
    vocab: int
    parameters: int
    weight_bytes: int
    causal: bool
    has_template: bool
    template: str
    pooling: str
    fingerprint: str
    metadata: dict[str, Any] = {}
    sampling: dict[str, Any] = {}
    max_sequences: int = 0
    embedding_width: int = 0
    bos: str = ""
    eos: str = ""
    sees: bool = False  # whether it can be shown pictures
    hears: bool = False  # whether it can be given sounds
    device: str = ""  # what computes, in words
    gpu_bytes: int = 0  # of its weights, in the memory of GPUs


class Ready(Frame, frozen=True):
    """The model is loaded."""

    info: ModelInfo


class Broken(Frame, frozen=True):
    """The model cannot be loaded."""

    error: ErrorInfo


class Setup(msgspec.Struct):
    """What the server writes on the worker's stdin."""

    address: str | tuple[str, int]
    key: bytes
    model: str
    options: dict[str, Any]
    adapters: dict[str, str] = {}  # names and paths of LoRAs to begin with


ToModel = Generate | Cancel | Call
FromModel = Chunks | Result | Failed | Loading | Ready | Broken

encode = msgspec.msgpack.Encoder().encode
decode_to_model = msgspec.msgpack.Decoder(ToModel).decode
decode_from_model = msgspec.msgpack.Decoder(FromModel).decode
