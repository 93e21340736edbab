"""What `/completion` and `/infill` are asked with: llama.cpp's fields."""

from typing import Any

import msgspec

from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.openai.sampling import EngineFields, biases


class LoraId(msgspec.Struct, forbid_unknown_fields=True):
    """A LoRA by its place in `/lora-adapters`."""

    id: int
    scale: float = 1.0


class NativeFields(EngineFields, kw_only=True, forbid_unknown_fields=True):
    """llama.cpp's fields. What it has and this server does not do must be off."""

    model: str = ""
    n_predict: int | None = None
    max_completion_tokens: int | None = None
    n_cmpl: int | None = None
    n_probs: int = 0
    n_indent: int = 0
    t_max_predict_ms: int = 0
    t_max_prompt_ms: int = 0  # llama.cpp reads it no further either
    id_slot: int = -1
    return_tokens: bool = False
    timings_per_token: bool = False
    response_fields: list[str] | None = None
    sse_ping_interval: int | None = None
    logit_bias: list[Any] | dict[str, Any] | None = None
    lora: list[LoraId] | None = None
    # off, or an error
    min_keep: int = 0
    n_discard: int = 0
    n_cache_reuse: int = 0
    post_sampling_probs: bool = False
    backend_sampling: bool = False
    adaptive_target: float = -1.0
    adaptive_decay: float | None = None  # of no use without a target

    @property
    def silent(self) -> bool:
        """Whether the prompt is only computed, and nothing generated."""
        return self._most() == 0

    def _most(self) -> int | None:
        given = {self.n_predict, self.max_tokens, self.max_completion_tokens} - {None}
        if len(given) > 1:
            raise ApiError(400, f"n_predict and max_tokens differ: {given}: give one of them", param="n_predict")
        most = given.pop() if given else -1
        if most is not None and most < -1:
            raise ApiError(400, f"n_predict is {most}: must be -1 (no limit), 0 or more", param="n_predict")
        return None if most == -1 else most

    def answers(self, most: int) -> int:
        """How many answers to each prompt. Raises ApiError for too many."""
        n = self.n_cmpl if self.n_cmpl is not None else self.n if self.n is not None else 1
        if not 1 <= n <= most:
            raise ApiError(400, f"n_cmpl is {n}: must be a number from 1 to {most}", param="n_cmpl")
        return n

    def engine_options(self, limits: Limits, adapters: list[str]) -> dict[str, Any]:
        """The engine's options; `adapters` are the names of the loaded LoRAs. Raises ApiError."""
        self._check_off()
        given = self.options(limits)
        given["max_tokens"] = 1 if self.silent else self._most()
        if given.get("seed", 0) == -1:
            del given["seed"]
        if given.get("grammar") == "":
            del given["grammar"]
        if given.get("json_schema") == {}:
            given["json_schema"] = {"type": "object"}
        if given.get("top_n_sigma", 0) < 0:
            given["top_n_sigma"] = 0.0  # off, as llama.cpp says it
        if not 0 <= self.n_probs <= limits.top_logprobs:
            message = f"n_probs is {self.n_probs}: must be a number from 0 to {limits.top_logprobs}"
            raise ApiError(400, message, param="n_probs")
        if self.n_probs:
            given["logprobs"] = self.n_probs
        if self.logit_bias is not None:
            pairs = list(self.logit_bias.items()) if isinstance(self.logit_bias, dict) else self.logit_bias
            given["logit_bias"] = biases([_pair(pair) for pair in pairs], limits.logit_bias)
        if self.lora is not None:
            given["adapters"] = scales(self.lora, adapters)
        return given

    def _check_off(self) -> None:
        for name in ("min_keep", "n_discard", "n_cache_reuse", "post_sampling_probs", "backend_sampling"):
            if value := getattr(self, name):
                raise ApiError(400, f"{name} is {value}: this server does not do that: leave it out", param=name)
        if self.adaptive_target >= 0:
            message = f"adaptive_target is {self.adaptive_target}: there is no such sampler here: leave it out"
            raise ApiError(400, message, param="adaptive_target")
        if self.n_keep is not None and self.n_keep < 0:
            raise ApiError(400, f"n_keep is {self.n_keep}: must be 0 or more", param="n_keep")
        for name in ("n_indent", "t_max_predict_ms", "t_max_prompt_ms"):
            if getattr(self, name) < 0:
                raise ApiError(400, f"{name} is {getattr(self, name)}: must be 0 or more", param=name)


def _pair(pair: Any) -> tuple[Any, Any]:
    """A token and its bias; false bans the token."""
    if not isinstance(pair, list | tuple) or len(pair) != 2 or isinstance(pair[0], bool):
        message = "logit_bias must be pairs [token id, bias], or an object of them"
        raise ApiError(400, message, param="logit_bias")
    return pair[0], float("-inf") if pair[1] is False else pair[1]


def scales(given: list[LoraId], names: list[str]) -> dict[str, float]:
    """LoRAs by name with their scales. Raises ApiError for an id that there is not."""
    for lora in given:
        if not 0 <= lora.id < len(names):
            raise ApiError(
                400, f"there is no LoRA {lora.id}: {len(names)} are loaded, see /lora-adapters", param="lora"
            )
    return {names[lora.id]: lora.scale for lora in given}


class CompletionRequest(NativeFields, kw_only=True, forbid_unknown_fields=True):
    """The body of `/completion`."""

    prompt: str | list[Any] | dict[str, Any]

    def prompts(self, limits: Limits) -> list[list[str | int]]:
        """Each prompt as texts and token ids, one after the other. Raises ApiError."""
        given = self.prompt
        several = isinstance(given, list) and (
            all(isinstance(item, str) for item in given) or any(isinstance(item, list | dict) for item in given)
        )
        prompts = [_parts(item) for item in given] if several else [_parts(given)]
        if not 1 <= len(prompts) <= limits.inputs:
            raise ApiError(400, f"there are {len(prompts)} prompts: 1 to {limits.inputs} are allowed", param="prompt")
        return prompts


def _parts(item: Any) -> list[str | int]:
    if isinstance(item, dict) and set(item) <= {"prompt_string", "multimodal_data"} and "prompt_string" in item:
        if item.get("multimodal_data"):
            raise ApiError(400, "multimodal_data is given: prompts are text here", param="prompt")
        item = item["prompt_string"]
    parts = item if isinstance(item, list) else [item]
    if not parts or not all(isinstance(part, str) or type(part) is int for part in parts):
        message = "prompt must be a text, token ids, a list that mixes them, or a list of such prompts"
        raise ApiError(400, message, param="prompt")
    return parts


class ExtraFile(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    filename: str = "tmp"


class InfillRequest(NativeFields, kw_only=True, forbid_unknown_fields=True):
    """The body of `/infill`."""

    input_prefix: str
    input_suffix: str
    input_extra: list[ExtraFile] | None = None
    prompt: str = ""
