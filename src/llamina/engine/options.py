"""The options of the engine's verbs, for type checkers; `Request`, `Sampling` and `ChatSettings` check the values."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from llamina.backends import KvType
from llamina.chat import Format
from llamina.chat.tool_choice import ToolChoice
from llamina.engine.delta import Delta
from llamina.engine.request import ReasoningLimit
from llamina.engine.speculation.modes import Speculate
from llamina.grammar import Grammar, Triggers
from llamina.models.rope_overrides import RopeScaling
from llamina.sampling import LogitsProcessor


class SamplingOptions(TypedDict, total=False):
    """The fields of `Sampling`."""

    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    top_a: float
    epsilon_cutoff: float
    eta_cutoff: float
    xtc_probability: float
    xtc_threshold: float
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    repeat_last_n: int
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    logit_bias: Mapping[int, float]
    banned_tokens: Sequence[int]
    samplers: Sequence[str]
    seed: int | None


class StreamOptions(SamplingOptions, total=False):
    """The fields of `Request` that are asked for by name, and those of `Sampling`."""

    max_tokens: int | None
    min_tokens: int
    stop: Sequence[str] | str
    stop_tokens: Sequence[int]
    bad_words: Sequence[str] | str
    include_stop: bool
    reasoning_limit: ReasoningLimit | None
    markers: Sequence[str]
    ignore_eos: bool
    priority: int
    logits_processor: LogitsProcessor | None
    cache_prompt: bool
    cache_salt: str
    truncate: bool
    context_shift: bool
    n_keep: int
    logprobs: int | None
    prompt_logprobs: int | None
    index: int
    grammar: str | Grammar | None
    json_schema: str | Mapping[str, Any] | bool | None
    regex: str | None
    choices: Sequence[str] | None
    lark: str | None
    triggers: Triggers | None
    adapters: Mapping[str, float]
    speculate: Speculate
    on_delta: Callable[[Delta], None] | None  # told of every delta, in order; may cancel the sequence


class GenerateOptions(StreamOptions, total=False):
    """Those of `stream`, and how many answers are wanted."""

    n: int
    best_of: int | None
    beam_width: int
    length_penalty: float
    early_stopping: bool


class ChatOptions(StreamOptions, total=False):
    """Those of `stream`, and the fields of `ChatSettings`."""

    tools: Sequence[Mapping[str, Any]]
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    reasoning: bool | Sequence[str]
    reasoning_budget: int | None
    format: str | Format | Sequence[str] | None
    template_options: Mapping[str, Any]


class LoadOptions(TypedDict, total=False):
    """How a model is loaded; see `load`."""

    kv_type: KvType
    stream: int | None
    exact: bool
    step_tokens: int | None
    max_sequences: int
    max_waiting: int
    cache_tokens: int | None
    offload: Literal["none", "budget", "pinned"]
    memory_budget: int | None
    pin: Sequence[int | Literal["embeddings", "output"]] | None
    prefetch: int | None
    huge_pages: bool
    gpu_layers: int | Literal["auto", "all"] | None
    tensor_parallel: int
    sampling: Mapping[str, Any] | None
    rope_scaling: RopeScaling | None
    rope_freq_base: float | None
    rope_freq_scale: float | None
    yarn_ext_factor: float | None
    yarn_attn_factor: float | None
    yarn_beta_fast: float | None
    yarn_beta_slow: float | None
    yarn_orig_ctx: int | None
    tokenizer: str | os.PathLike[str] | None
    chat_template: str | None
    picture_hosts: Sequence[str] | None
    quantize: str | None
    quantize_tensors: Mapping[str, str] | None
    quantize_imatrix: str | os.PathLike[str] | None
    requantize: bool
    revision: str | None
    token: str | None
