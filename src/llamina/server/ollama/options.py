"""Ollama's options, formats and durations, as the engine's options."""

import math
from typing import Any

import msgspec

from llamina.server import units
from llamina.server.errors import ApiError

LEVELS = ("low", "medium", "high", "max")  # of `think`
CENTURY = 100 * 365 * 86400.0  # seconds; no clock need reckon with more


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """Every option that Ollama has or had."""

    # what the engine is told
    num_keep: int | None = None
    seed: int | None = None
    num_predict: int | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_last_n: int | None = None
    temperature: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    stop: str | list[str] | None = None
    # what is checked
    num_ctx: int | None = None
    tfs_z: float | None = None
    penalize_newline: bool | None = None
    vocab_only: bool | None = None
    embedding_only: bool | None = None
    # hints of how to compute the same answer; the model is loaded as its profile says
    numa: bool | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    num_thread: int | None = None
    draft_num_predict: int | None = None

    def engine_options(self) -> dict[str, Any]:
        """Options of the engine. Raises ApiError for what Ollama had once and nobody does any more."""
        if self.tfs_z not in (None, 1):
            raise ApiError(400, f"tfs_z is {self.tfs_z}: tail-free sampling is not supported", param="options.tfs_z")
        if self.penalize_newline is False:
            message = "penalize_newline is false: penalties here know no exceptions, so leave it out"
            raise ApiError(400, message, param="options.penalize_newline")
        for name in ("vocab_only", "embedding_only"):
            if getattr(self, name):
                raise ApiError(400, f"{name} is true: models are loaded as a whole", param=f"options.{name}")
        given = {name: value for name in SAME if (value := getattr(self, name)) is not None}
        if self.num_keep is not None:
            given["n_keep"] = self.num_keep
        if self.seed is not None and self.seed >= 0:  # below 0: another each time
            given["seed"] = self.seed
        if self.num_predict is not None:
            given["max_tokens"] = self.num_predict if self.num_predict > 0 else None  # until the context is full
        return given

    def check_context(self, context: int) -> None:
        """Raise ApiError if a longer context is asked for than the model is loaded with."""
        if self.num_ctx is not None and self.num_ctx > context:
            message = f"num_ctx is {self.num_ctx} and the model is loaded with a context of {context}"
            raise ApiError(400, f"{message}: set it in the model's profile", param="options.num_ctx")


SAME = (
    "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "temperature", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta", "stop",
)  # fmt: skip


def read_options(given: dict[str, Any] | None, param: str = "options") -> Options:
    """Options from a map. Raises ApiError that names the one that is wrong."""
    plain = {name: value for name, value in (given or {}).items() if value is not None}
    try:
        return msgspec.convert(plain, Options)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"{param}: {error}", param=param) from error


def constraint(format: str | dict[str, Any] | None) -> dict[str, Any]:
    """The grammar that a `format` asks for: "json", or a JSON schema."""
    if isinstance(format, dict):
        return {"json_schema": closed(format)}
    if format not in (None, "", "json"):
        raise ApiError(400, f'format is {format!r}: must be "json" or a JSON schema', param="format")
    return {"json_schema": {"type": "object"}} if format == "json" else {}


def closed(schema: Any) -> Any:
    """A schema whose objects have the properties that are listed and no others, unless it says what others may be.

    That is how Ollama reads schemas. Parts of an `allOf` stay as they are: each has only some of the properties.
    """
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        if isinstance(inner := schema.get(key), dict):
            found[key] = {name: closed(item) for name, item in inner.items()}
    for key in ("items", "prefixItems", "anyOf", "oneOf", "additionalProperties"):
        if key in schema:
            found[key] = closed(schema[key])
    if "properties" in schema and "allOf" not in schema:
        found.setdefault("additionalProperties", False)
    return found


def thinking(think: bool | str | None, able: bool, model: str) -> dict[str, Any]:
    """Variables of the chat template. Raises ApiError if a model is to think that cannot."""
    if isinstance(think, str) and think not in LEVELS:
        raise ApiError(
            400, f"think is {think!r}: must be true, false, {', '.join(LEVELS[:-1])} or {LEVELS[-1]}", param="think"
        )
    if think is None:
        return {}
    if think and not able:
        raise ApiError(400, f'"{model}" does not support thinking', param="think")
    found: dict[str, Any] = {"enable_thinking": bool(think)}
    return found | ({"reasoning_effort": think} if isinstance(think, str) else {})


def seconds(duration: float | str | None) -> float | None:
    """A `keep_alive` in seconds; below 0 is for ever, as is a century. Raises ApiError for one that is none."""
    if duration is None or not isinstance(duration, str):
        return None if duration is None else _forever(float(duration))
    try:
        return _forever(units.duration(duration))
    except ValueError as error:
        raise ApiError(400, f"keep_alive is {duration!r}: {error}", param="keep_alive") from None


def _forever(value: float) -> float:
    return value if 0 <= value < CENTURY else math.inf
