"""The sampling parameters of OpenAI's API, with the names that vLLM, llama.cpp and transformers give the others."""

from typing import Any

import msgspec

from llamina.server.caller import CALLER
from llamina.server.config import Limits
from llamina.server.errors import ApiError


class LoraScale(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    scale: float = 1.0


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """How vLLM asks for an answer that follows a grammar."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None

    def options(self) -> dict[str, Any]:
        """Under the engine's names."""
        schema = {"type": "object"} if self.json_object and self.json is None else self.json
        found = {"json_schema": schema, "regex": self.regex, "choices": self.choice, "grammar": self.grammar}
        return {name: value for name, value in found.items() if value is not None}


class EngineFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What requests that generate have in common, in OpenAI's and in llama.cpp's API. None: the model's default."""

    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    user: str | None = None
    # extensions, under the names of vLLM, llama.cpp and transformers
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    typ_p: float | None = None
    top_n_sigma: float | None = None
    top_a: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repetition_penalty: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    samplers: list[str] | None = None
    banned_tokens: list[int] | None = None
    bad_words: list[str] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    stop_tokens: list[int] | None = None
    stop_token_ids: list[int] | None = None
    include_stop: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    priority: int | None = None
    cache_prompt: bool | None = None
    cache_salt: str | None = None
    n_keep: int | None = None
    context_shift: bool | None = None
    truncate: bool | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    guided_json: dict[str, Any] | str | None = None
    regex: str | None = None
    guided_regex: str | None = None
    choices: list[str] | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    lark: str | None = None
    structured_outputs: StructuredOutputs | None = None
    speculate: str | int | None = None
    return_progress: bool | None = None

    def options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what is over the server's limits or given twice."""
        given: dict[str, Any] = {}
        for name in SAME:
            if (value := getattr(self, name)) is not None:
                given[name] = value
        for name, ours in OTHER_NAMES.items():
            if (value := getattr(self, name)) is not None:
                if ours in given and given[ours] != value:
                    raise ApiError(400, f"{name} and {ours} are both given, and differ", param=name)
                given[ours] = value
        for name, value in (self.structured_outputs.options() if self.structured_outputs else {}).items():
            if name in given:
                raise ApiError(400, f"structured_outputs and {name} are both given", param="structured_outputs")
            given[name] = value
        if self.skip_special_tokens is False:
            message = "skip_special_tokens is false: control tokens are no part of a text here: leave it out"
            raise ApiError(400, message, param="skip_special_tokens")
        if given.get("priority", 0) > 0 and "admin:write" not in CALLER.get().scopes:
            message = f"priority is {self.priority}: must be at most 0, as only an administrator's requests go first"
            raise ApiError(403, message, "permission_error", param="priority", code="insufficient_scope")
        check_limits(given, limits)
        return given


class SamplingFields(EngineFields, kw_only=True, forbid_unknown_fields=True):
    """The same as OpenAI's API has it."""

    max_new_tokens: int | None = None  # transformers' name of max_tokens
    logit_bias: dict[str, float] | None = None
    lora: str | list[LoraScale] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is None:
            self.max_tokens = self.max_new_tokens
        elif self.max_new_tokens not in (None, self.max_tokens):
            raise ApiError(400, "max_new_tokens and max_tokens are both given, and differ", param="max_new_tokens")

    def options(self, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what is over the server's limits or given twice."""
        given = EngineFields.options(self, limits)
        if self.logit_bias is not None:
            given["logit_bias"] = biases(list(self.logit_bias.items()), limits.logit_bias)
        if self.lora is not None:
            given["adapters"] = {self.lora: 1.0} if isinstance(self.lora, str) else {x.name: x.scale for x in self.lora}
        return given


SAME = (
    "temperature", "top_p", "stop", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "top_k", "min_p",
    "typical_p", "top_n_sigma", "top_a", "epsilon_cutoff", "eta_cutoff", "xtc_probability", "xtc_threshold",
    "repeat_penalty", "repeat_last_n", "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "mirostat", "mirostat_tau", "mirostat_eta",
    "samplers", "banned_tokens", "bad_words", "ignore_eos", "min_tokens", "stop_tokens", "include_stop", "priority",
    "cache_prompt", "cache_salt", "n_keep", "context_shift",
    "truncate", "grammar", "json_schema", "regex", "choices", "lark", "speculate",
)  # fmt: skip
OTHER_NAMES = {
    "repetition_penalty": "repeat_penalty",
    "typ_p": "typical_p",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choices",
    "guided_grammar": "grammar",
    "stop_token_ids": "stop_tokens",
    "include_stop_str_in_output": "include_stop",
}


def biases(pairs: list[tuple[Any, Any]], most: int) -> dict[int, float]:
    """Tokens with what is added to their logits. Raises ApiError for what is no token, or too many of them."""
    if len(pairs) > most:
        raise ApiError(400, f"logit_bias has {len(pairs)} tokens: {most} are allowed", param="logit_bias")
    try:
        return {int(token): float(value) for token, value in pairs}
    except (TypeError, ValueError) as error:
        raise ApiError(400, f"logit_bias names tokens by their ids: {error}", param="logit_bias") from error


def check_limits(given: dict[str, Any], limits: Limits) -> None:
    """Raise ApiError for options over the server's limits."""
    stops = given.get("stop")
    stops = [stops] if isinstance(stops, str) else stops or []
    _check_many("stop", stops, limits.stop_strings, limits.stop_length)
    _check_many(
        "dry_sequence_breakers", given.get("dry_sequence_breakers") or [], limits.stop_strings, limits.stop_length
    )
    _check_many("bad_words", given.get("bad_words") or [], limits.logit_bias, limits.stop_length)
    for name in ("banned_tokens", "stop_tokens"):
        _check_many(name, given.get(name) or [], limits.logit_bias)
    _check_many("adapters", given.get("adapters") or {}, limits.adapters)
    for name in ("grammar", "lark"):
        if len((given.get(name) or "").encode()) > limits.grammar_bytes:
            raise ApiError(400, f"{name} is larger than {limits.grammar_bytes} bytes", param=name)
    if len((given.get("regex") or "").encode()) > limits.regex_bytes:
        raise ApiError(400, f"regex is larger than {limits.regex_bytes} bytes", param="regex")
    for name, most in (("json_schema", limits.schema_bytes), ("choices", limits.grammar_bytes)):
        if name in given and len(msgspec.json.encode(given[name])) > most:
            raise ApiError(400, f"{name} is larger than {most} bytes", param=name)


def _check_many(name: str, items: Any, most: int, longest: int | None = None) -> None:
    if len(items) > most:
        raise ApiError(400, f"{name} has {len(items)} items: {most} are allowed", param=name)
    if longest is not None and (size := max(map(len, items), default=0)) > longest:
        raise ApiError(400, f"{name} has a text of {size} characters: {longest} are allowed", param=name)
