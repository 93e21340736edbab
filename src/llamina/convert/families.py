"""Families of models: transformers' class → GGUF's architecture, names, edits and metadata."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llamina.convert import edits, names
from llamina.convert.edits import Edit
from llamina.convert.settings import Settings
from llamina.errors import UnsupportedModel

Keys = dict[str, object]
SOFTMAX, SIGMOID = 1, 2  # expert_gating_func


def _nothing(settings: Settings) -> Keys:
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """What is particular to some models; a key of None is left out of what all have."""

    architecture: str
    names: Mapping[str, str]
    edits: Mapping[str, Edit] = field(default_factory=dict)
    keys: Callable[[Settings], Keys] = _nothing
    # Values that transformers takes where config.json says nothing.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # Settings that GGUF has no key for, and the values that the architecture means.
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    rotates: bool = True
    windows: bool = False  # has layers that see a sliding window
    encoder: bool = False
    ignored: re.Pattern[str] | None = None  # tensors that have no use in GGUF
    pads: bool = False  # positions count from behind the padding token

    def check(self, settings: Settings) -> None:
        """Refuse what the architecture cannot express in GGUF."""
        for key, allowed in self.fixed.items():
            value = settings.get(key, allowed[0])
            if value not in allowed:
                meant = " or ".join(repr(item) for item in allowed)
                raise UnsupportedModel(
                    f"config.json: {key.split()[0]} is {value!r}, but {self.architecture} in GGUF means {meant}"
                )


def _experts(settings: Settings) -> Keys:
    shared = settings.get("shared_expert_intermediate_size")
    found: Keys = {"expert_feed_forward_length": settings.count("moe_intermediate_size")}
    return found | ({} if shared is None else {"expert_shared_feed_forward_length": shared})


def _gemma2(settings: Settings) -> Keys:
    _check_query_scale(settings, wide=46)
    return {
        "attn_logit_softcapping": settings.number("attn_logit_softcapping"),
        "final_logit_softcapping": settings.number("final_logit_softcapping"),
    }


def _gemma3(settings: Settings) -> Keys:
    _check_query_scale(settings, wide=62)
    cap = settings.get("final_logit_softcapping")
    return {} if cap is None else {"final_logit_softcapping": float(cap)}


def _check_query_scale(settings: Settings, wide: int) -> None:
    """GGUF has no key for the scale: it follows from the head, or from the width in the largest model."""
    meant = settings.width // settings.heads if settings.layers == wide else settings.head_dim
    if (given := settings.get("query_pre_attn_scalar", meant)) != meant:
        raise UnsupportedModel(f"config.json: query_pre_attn_scalar is {given}, and GGUF has room for {meant} only")


def _phi3(settings: Settings) -> Keys:
    original = settings.count("original_max_position_embeddings", settings.context)
    window = settings.count("sliding_window", 0, least=0)
    return {"rope.scaling.original_context_length": original, "attention.sliding_window": window}


def _cohere(settings: Settings) -> Keys:
    return {
        "logit_scale": settings.number("logit_scale"),
        "context_length": settings.count("model_max_length max_position_embeddings"),
        "rope.scaling.type": "none",
    }


def _falcon(settings: Settings) -> Keys:
    return {
        "tensor_data_layout": "jploski",
        "attention.head_count_kv": edits.falcon_kv_heads(settings),
        "feed_forward_length": settings.count("ffn_hidden_size", 4 * settings.width),
    }


def _four_times(settings: Settings) -> Keys:
    return {"feed_forward_length": settings.count("n_inner", 4 * settings.width)}


def _residual(settings: Settings) -> Keys:
    return {"use_parallel_residual": bool(settings.get("use_parallel_residual", False))}


def _neox(settings: Settings) -> Keys:
    return {"use_parallel_residual": bool(settings.get("use_parallel_residual", True)), "attention.head_count_kv": None}


def _granite(settings: Settings) -> Keys:
    return {
        "attention.scale": settings.number("attention_multiplier", 1.0),
        "embedding_scale": settings.number("embedding_multiplier", 1.0),
        "residual_scale": settings.number("residual_multiplier", 1.0),
        "logit_scale": settings.number("logits_scaling", 1.0),
    }


def _deepseek(settings: Settings, gating: int) -> Keys:
    latent, turned = settings.count("kv_lora_rank", 512), settings.count("qk_rope_head_dim")
    experts = settings.get("n_routed_experts") is not None
    found: Keys = {
        "attention.head_count_kv": 1,  # every head reads the one latent
        "attention.kv_lora_rank": latent,
        "attention.q_lora_rank": settings.get("q_lora_rank"),
        "attention.key_length": latent + turned,
        "attention.value_length": latent,
        "attention.key_length_mla": settings.count("qk_nope_head_dim") + turned,
        "attention.value_length_mla": settings.count("v_head_dim"),
        "rope.dimension_count": turned,
        "leading_dense_block_count": settings.count(
            "first_k_dense_replace", 0 if experts else settings.layers, least=0
        ),
        "expert_feed_forward_length": settings.count("moe_intermediate_size intermediate_size"),
        "expert_shared_count": settings.count("n_shared_experts", 0, least=0),
        "expert_weights_scale": settings.number("routed_scaling_factor", 1.0),
        "expert_weights_norm": bool(settings.get("norm_topk_prob", False)),
        "expert_gating_func": gating,
    }
    groups = settings.get("n_group")
    if groups is not None and settings.get("topk_method") != "greedy":
        found |= {"expert_group_count": groups, "expert_group_used_count": settings.count("topk_group")}
    scaling = settings.get("rope_parameters rope_scaling", {})
    if isinstance(scaling, dict) and scaling.get("mscale_all_dim"):
        found["rope.scaling.yarn_log_multiplier"] = 0.1 * float(scaling["mscale_all_dim"])
    return found


def _mamba2(settings: Settings) -> Keys:
    inner = settings.count("expand", 2) * settings.width
    return {
        "context_length": 1 << 20,  # it has no limit of its own
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.head_count_kv": None,
        "attention.layer_norm_rms_epsilon": settings.number("layer_norm_epsilon rms_norm_eps", 1e-5),
        "attention.layer_norm_epsilon": None,
        "ssm.conv_kernel": settings.count("conv_kernel", 4),
        "ssm.inner_size": inner,
        "ssm.state_size": settings.count("state_size", 128),
        "ssm.time_step_rank": inner // settings.count("head_dim", 64),
        "ssm.group_count": settings.count("n_groups", 1),
        "attention.key_length": None,
        "attention.value_length": None,
    }


def _bert(settings: Settings) -> Keys:
    return {"attention.causal": False}


_SILU = {"hidden_act": ("silu",)}
_GELU = {
    "hidden_act hidden_activation activation_function activation": (
        "gelu",
        "gelu_new",
        "gelu_pytorch_tanh",
        "gelu_fast",
    )
}
_INTERLEAVED: dict[str, Edit] = {"attn_q": edits.interleave_queries, "attn_k": edits.interleave_keys}
_SHIFTED: dict[str, Edit] = dict.fromkeys(
    (
        "attn_norm",
        "ffn_norm",
        "output_norm",
        "post_attention_norm",
        "post_ffw_norm",
        "attn_q_norm",
        "attn_k_norm",
    ),
    edits.plus_one,
)

_LLAMA = Family("llama", names.LLAMA, _INTERLEAVED, fixed=_SILU)
_QWEN2 = Family("qwen2", names.LLAMA, fixed=_SILU)
_ALL_SPARSE = {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}
_QWEN2_MOE = Family(
    "qwen2moe",
    names.QWEN2_MOE,
    {"ffn_gate_inp_shexp": edits.flat},
    _experts,
    fixed=_SILU | _ALL_SPARSE | {"norm_topk_prob": (False,)},
)
_GEMMA = Family("gemma", names.LLAMA, _SHIFTED, fixed=_GELU, defaults={"head_dim": 256})
_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "query_pre_attn_scalar": 256,
}
_GEMMA3 = Family("gemma3", names.GEMMA3, _SHIFTED, _gemma3, fixed=_GELU, defaults=_GEMMA3_DEFAULTS, windows=True)
_DEEPSEEK2 = Family("deepseek2", names.DEEPSEEK, keys=lambda s: _deepseek(s, SOFTMAX), fixed=_SILU)
_HEADS = re.compile(r"(pooler|cls|lm_head)\.")  # an embedding is what the last layer says
_BERT = Family("bert", names.BERT, keys=_bert, fixed=_GELU, rotates=False, encoder=True, ignored=_HEADS)

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": _LLAMA,
    "LlamaModel": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "MixtralForCausalLM": replace(_LLAMA, names=names.MIXTRAL),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2Model": _QWEN2,
    "Qwen2MoeForCausalLM": _QWEN2_MOE,
    "Qwen3ForCausalLM": Family("qwen3", names.QWEN3, fixed=_SILU),
    "Qwen3MoeForCausalLM": Family(
        "qwen3moe", names.QWEN3_MOE, keys=_experts, fixed=_SILU | _ALL_SPARSE | {"norm_topk_prob": (True,)}
    ),
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": Family("gemma2", names.GEMMA2, _SHIFTED, _gemma2, fixed=_GELU, windows=True),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Phi3ForCausalLM": Family("phi3", names.PHI3, keys=_phi3, fixed=_SILU),
    "CohereForCausalLM": Family("command-r", names.COHERE, keys=_cohere, fixed=_SILU),
    "Cohere2ForCausalLM": Family("cohere2", names.COHERE, keys=_cohere, fixed=_SILU, windows=True),
    "FalconForCausalLM": Family(
        "falcon",
        names.FALCON,
        {"attn_qkv": edits.ungroup_falcon},
        _falcon,
        fixed=_GELU | {"alibi": (False,), "bias": (False,), "parallel_attn": (True,)},
    ),
    "GPT2LMHeadModel": Family(
        "gpt2",
        names.GPT2,
        dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), edits.transpose),
        _four_times,
        fixed=_GELU | {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
        rotates=False,
    ),
    "GPTNeoXForCausalLM": Family("gptneox", names.GPT_NEOX, {"attn_qkv": edits.ungroup_heads}, _neox, fixed=_GELU),
    "BloomForCausalLM": Family(
        "bloom",
        names.BLOOM,
        {"attn_qkv": edits.ungroup_heads},
        _four_times,
        fixed={"apply_residual_connection_post_layernorm": (False,)},
        rotates=False,
    ),
    "StableLmForCausalLM": Family("stablelm", names.STABLELM, keys=_residual, fixed=_SILU, defaults={"rope_pct": 0.25}),
    "Olmo2ForCausalLM": Family("olmo2", names.OLMO2, fixed=_SILU),
    "Olmo3ForCausalLM": Family("olmo2", names.OLMO2, fixed=_SILU, windows=True),
    "Starcoder2ForCausalLM": Family("starcoder2", names.STARCODER2, fixed=_GELU),
    "DeepseekV2ForCausalLM": _DEEPSEEK2,
    "DeepseekV3ForCausalLM": replace(
        _DEEPSEEK2, keys=lambda s: _deepseek(s, SIGMOID), fixed=_SILU | {"scoring_func": ("sigmoid",)}
    ),
    "Mamba2ForCausalLM": Family(
        "mamba2",
        names.MAMBA2,
        {
            "ssm_conv1d": edits.flat,
            "ssm_a": edits.decay,
            "ssm_d": edits.column,
            "ssm_norm": edits.state_groups,
        },
        _mamba2,
        fixed=_SILU | {"use_bias": (False,)},
        rotates=False,
    ),
    "GraniteForCausalLM": Family("granite", names.LLAMA, _INTERLEAVED, _granite, fixed=_SILU),
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "RobertaModel": replace(_BERT, edits={"position_embd": edits.after_padding}, pads=True),
    "XLMRobertaModel": replace(_BERT, edits={"position_embd": edits.after_padding}, pads=True),
}


def family_of(settings: Settings) -> Family:
    """The family of the class that config.json names."""
    for name in settings.classes:
        if name in FAMILIES:
            return FAMILIES[name]
    given = ", ".join(settings.classes) or settings.get("model_type", "nothing")
    near = difflib.get_close_matches(given, FAMILIES, 3, 0.5) or list(FAMILIES)
    raise UnsupportedModel(
        f"config.json names {given}, which llamina cannot convert; the nearest are {', '.join(near)}"
    )
