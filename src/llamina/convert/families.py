"""Families of models by their class in transformers: GGUF's architecture, names, edits and metadata."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llamina.convert import edits, keys, names
from llamina.convert.edits import PARTS, Edit
from llamina.convert.keys import Keys, nothing
from llamina.convert.settings import Settings
from llamina.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class Family:
    """How models of one or several classes are converted."""

    architecture: str
    names: Mapping[str, str]
    edits: Mapping[str, Edit] = field(default_factory=dict)
    keys: Callable[[Settings], Keys] = nothing
    parts: Mapping[str, Edit] = field(default_factory=lambda: PARTS)
    # transformers' defaults for what config.json leaves out.
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # Settings that GGUF has no key for, and the values that the architecture implies.
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    rope: bool = True  # has rotary position embeddings
    windows: bool = False  # has layers with a sliding window
    encoder: bool = False
    ignored: re.Pattern[str] | None = None  # tensors that GGUF does not need
    pads: bool = False  # positions count from the padding token + 1
    dense: bool = False  # may have matrices behind the pooling
    # Numbers of each layer that are tensors in a folder and metadata in GGUF: names, and keys without an architecture.
    learned: Mapping[str, str] = field(default_factory=dict)

    def check(self, settings: Settings) -> None:
        """Raise UnsupportedModel for settings that the architecture cannot express in GGUF."""
        for key, allowed in self.fixed.items():
            value = settings.get(key, allowed[0])
            if value not in allowed:
                implied = " or ".join(repr(item) for item in allowed)
                raise UnsupportedModel(
                    f"config.json: {key.split()[0]} is {value!r}, but {self.architecture} in GGUF implies {implied}"
                )


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
_HALVES: dict[str, Edit] = {"attn_q": edits.halve_queries, "attn_k": edits.halve_keys}
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
_QWEN2_VL = Family("qwen2vl", names.LLAMA, keys=keys.sections, fixed=_SILU)
# Text models inside models that see, by the model_type of their text_config, which leaves out transformers' defaults.
_LLAMA_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}
_LLAMA4 = Family(
    "llama4",
    names.LLAMA4,
    {"ffn_down_exps": edits.down_rows},
    keys.llama4,
    parts={"ffn_gate_exps": edits.gate_rows, "ffn_up_exps": edits.up_rows},
    defaults={"intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1, "head_dim": 128},
    fixed=_SILU
    | {"attention_chunk_size": (8192,), "floor_scale": (8192,), "attn_scale": (0.1,), "attention_bias": (False,)}
    | {"attn_temperature_tuning": (True, 4)},
)
_MISTRAL_DEFAULTS = {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
_QWEN2_DEFAULTS = _LLAMA_DEFAULTS | {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
}
_LLAMA_INSIDE = replace(_LLAMA, defaults=_LLAMA_DEFAULTS)
_MISTRAL_INSIDE = replace(_LLAMA, defaults=_LLAMA_DEFAULTS | _MISTRAL_DEFAULTS)
_QWEN2_INSIDE = replace(_QWEN2, defaults=_QWEN2_DEFAULTS)
_QWEN3 = Family("qwen3", names.QWEN3, fixed=_SILU)
_INSIDE = {"llama": _LLAMA_INSIDE, "mistral": _MISTRAL_INSIDE, "qwen2": _QWEN2_INSIDE, "qwen3": _QWEN3}
_LFM2 = Family("lfm2", names.LFM2, {"shortconv.conv": edits.flat}, keys.lfm2, fixed={"conv_bias": (False,)})
_GLM4_DEFAULTS = {"partial_rotary_factor": 0.5}
_GLM4 = Family("glm4", names.GLM4, fixed=_SILU, defaults=_GLM4_DEFAULTS)
_ALL_SPARSE = {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}
_QWEN2_MOE = Family(
    "qwen2moe",
    names.QWEN2_MOE,
    {"ffn_gate_inp_shexp": edits.flat},
    keys.experts,
    fixed=_SILU | _ALL_SPARSE | {"norm_topk_prob": (False,)},
)
_RELU2 = {"hidden_act": ("relu2",)}
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
_GEMMA3 = Family("gemma3", names.GEMMA3, _SHIFTED, keys.gemma3, fixed=_GELU, defaults=_GEMMA3_DEFAULTS, windows=True)
_GEMMA4 = Family(
    "gemma4",
    names.GEMMA4,
    keys=keys.gemma4,
    fixed=_GELU | {"use_bidirectional_attention": (None, "vision"), "attention_bias": (False,)},
    defaults=_GEMMA3_DEFAULTS
    | {"sliding_window": 512, "global_head_dim": 512, "hidden_size_per_layer_input": 256, "tie_word_embeddings": True},
    windows=True,
)
_GEMMA3N = Family(
    "gemma3n",
    names.GEMMA3N,
    {"per_layer_token_embd": edits.padded_rows},
    keys.gemma3n,
    fixed=_GELU
    | {"final_logit_softcapping": (30.0,), "altup_correct_scale": (True,), "attention_bias": (False,)}
    | {"altup_num_inputs": (4,), "altup_active_idx": (0,)},
    defaults=_GEMMA3_DEFAULTS
    | {"num_key_value_heads": 2, "max_position_embeddings": 32768, "sliding_window": 512, "vocab_size": 262400}
    | {"hidden_size_per_layer_input": 256, "tie_word_embeddings": True},
    windows=True,
)
_EMBEDDING_GEMMA = Family(
    "gemma-embedding",
    names.GEMMA3,
    _SHIFTED,
    keys.gemma_embedding,
    fixed=_GELU | {"use_bidirectional_attention": (True,)},
    defaults=_GEMMA3_DEFAULTS,
    windows=True,
    encoder=True,
    dense=True,
)
_DEEPSEEK2 = Family("deepseek2", names.DEEPSEEK, keys=lambda s: keys.deepseek(s, keys.SOFTMAX), fixed=_SILU)
_GRANITE_MOE = Family("granitemoe", names.GRANITE_MOE, _INTERLEAVED, keys.granite_moe, fixed=_SILU)
_MAMBA = Family(
    "mamba",
    names.MAMBA,
    {"ssm_conv1d": edits.flat, "ssm_a": edits.negative_exponential},
    keys.mamba,
    fixed=_SILU | {"use_bias": (False,)},
    rope=False,
)
_HEADS = re.compile(r"(pooler|cls|lm_head)\.")  # an embedding is what the last layer says
_BERT = Family("bert", names.BERT, keys=keys.bert, fixed=_GELU, rope=False, encoder=True, ignored=_HEADS)
_NO_BIASES = {"attention_bias": (False,), "mlp_bias": (False,)}
_EUROBERT = Family("eurobert", names.LLAMA, keys=keys.bert, fixed=_SILU | _NO_BIASES, encoder=True, ignored=_HEADS)
_MODERN_BERT = Family(
    "modern-bert",
    names.MODERN_BERT,
    keys=keys.modern_bert,
    defaults={"global_rope_theta": 160000.0, "local_rope_theta": 10000.0},
    fixed=_NO_BIASES | {"norm_bias": (False,), "hidden_activation": ("gelu", "silu")},
    encoder=True,
    ignored=re.compile(r"(head|decoder)\."),
)
_XIELU = {f"layers.*.mlp.act_fn.{name}": f"xielu.{name}" for name in ("alpha_n", "alpha_p", "beta", "eps")}

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": _LLAMA,
    "LlamaModel": _LLAMA,
    "Llama4ForCausalLM": _LLAMA4,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "MistralForCausalLM": _LLAMA,
    "MixtralForCausalLM": replace(_LLAMA, names=names.MIXTRAL),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2Model": _QWEN2,
    "Qwen2MoeForCausalLM": _QWEN2_MOE,
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3MoeForCausalLM": Family(
        "qwen3moe", names.QWEN3_MOE, keys=keys.experts, fixed=_SILU | _ALL_SPARSE | {"norm_topk_prob": (True,)}
    ),
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": Family("gemma2", names.GEMMA2, _SHIFTED, keys.gemma2, fixed=_GELU, windows=True),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "Gemma3nForCausalLM": _GEMMA3N,
    "Gemma3nForConditionalGeneration": _GEMMA3N,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma3TextModel": _EMBEDDING_GEMMA,
    "LlavaForConditionalGeneration": _LLAMA_INSIDE,
    "LlavaNextForConditionalGeneration": _LLAMA_INSIDE,
    "Idefics3ForConditionalGeneration": _LLAMA_INSIDE,
    "SmolVLMForConditionalGeneration": _LLAMA_INSIDE,
    "Mistral3ForConditionalGeneration": _MISTRAL_INSIDE,
    "Qwen2VLForConditionalGeneration": _QWEN2_VL,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2_VL,
    "Qwen2_5OmniModel": _QWEN2_VL,
    "Qwen2_5OmniForConditionalGeneration": _QWEN2_VL,
    "Qwen2_5OmniThinkerForConditionalGeneration": _QWEN2_VL,
    "Qwen3VLForConditionalGeneration": Family("qwen3vl", names.QWEN3, keys=keys.deep_sections, fixed=_SILU),
    "Qwen3VLMoeForConditionalGeneration": Family(
        "qwen3vlmoe",
        names.QWEN3_MOE,
        {"ffn_down_exps": edits.down_rows},
        keys.deep_experts,
        parts={"ffn_gate_exps": edits.gate_rows, "ffn_up_exps": edits.up_rows},
        fixed=_SILU | _ALL_SPARSE | {"norm_topk_prob": (True,)},
    ),
    "InternVLForConditionalGeneration": _QWEN2_INSIDE,
    "InternVLChatModel": _QWEN2_INSIDE,
    "JanusForConditionalGeneration": _LLAMA_INSIDE,
    "Lfm2VlForConditionalGeneration": _LFM2,
    "Qwen2AudioForConditionalGeneration": _QWEN2_INSIDE,
    "VoxtralForConditionalGeneration": _LLAMA_INSIDE,
    "Phi3ForCausalLM": Family("phi3", names.PHI3, keys=keys.phi3, fixed=_SILU),
    "CohereForCausalLM": Family("command-r", names.COHERE, keys=keys.cohere, fixed=_SILU),
    "Cohere2ForCausalLM": Family("cohere2", names.COHERE, keys=keys.cohere, fixed=_SILU, windows=True),
    "FalconForCausalLM": Family(
        "falcon",
        names.FALCON,
        {"attn_qkv": edits.ungroup_falcon},
        keys.falcon,
        fixed=_GELU | {"alibi": (False,), "bias": (False,), "parallel_attn": (True,)},
    ),
    "GPT2LMHeadModel": Family(
        "gpt2",
        names.GPT2,
        dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), edits.transpose),
        keys.four_times,
        fixed=_GELU | {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
        rope=False,
    ),
    "GPTNeoXForCausalLM": Family("gptneox", names.GPT_NEOX, {"attn_qkv": edits.ungroup_heads}, keys.neox, fixed=_GELU),
    "BloomForCausalLM": Family(
        "bloom",
        names.BLOOM,
        {"attn_qkv": edits.ungroup_heads},
        keys.four_times,
        fixed={"apply_residual_connection_post_layernorm": (False,)},
        rope=False,
    ),
    "StableLmForCausalLM": Family(
        "stablelm", names.STABLELM, keys=keys.residual, fixed=_SILU, defaults={"rope_pct": 0.25}
    ),
    "Olmo2ForCausalLM": Family("olmo2", names.OLMO2, fixed=_SILU),
    "Olmo3ForCausalLM": Family("olmo2", names.OLMO2, fixed=_SILU, windows=True),
    "Starcoder2ForCausalLM": Family("starcoder2", names.STARCODER2, fixed=_GELU),
    "DeepseekV2ForCausalLM": _DEEPSEEK2,
    "DeepseekV3ForCausalLM": replace(
        _DEEPSEEK2, keys=lambda s: keys.deepseek(s, keys.SIGMOID), fixed=_SILU | {"scoring_func": ("sigmoid",)}
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
        keys.mamba2,
        fixed=_SILU | {"use_bias": (False,)},
        rope=False,
    ),
    "GraniteForCausalLM": Family("granite", names.LLAMA, _INTERLEAVED, keys.granite, fixed=_SILU),
    "GraniteMoeForCausalLM": _GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": _GRANITE_MOE,
    "SmolLM3ForCausalLM": Family("smollm3", names.LLAMA, _INTERLEAVED, fixed=_SILU | {"no_rope_layer_interval": (4,)}),
    "ArceeForCausalLM": Family("arcee", names.LLAMA, _INTERLEAVED, fixed=_RELU2),
    "SeedOssForCausalLM": Family("seed_oss", names.SEED_OSS, fixed=_SILU),
    "Exaone4ForCausalLM": Family("exaone4", names.OLMO2, keys=keys.exaone4, fixed=_SILU, windows=True),
    "Glm4ForCausalLM": _GLM4,
    "Glm4vForConditionalGeneration": replace(_GLM4, edits=_HALVES, keys=keys.sections),
    "Glm4MoeForCausalLM": Family(
        "glm4moe", names.GLM4_MOE, keys=keys.glm4_moe, fixed=_SILU, defaults={"partial_rotary_factor": 0.5}
    ),
    "ApertusForCausalLM": Family(
        "apertus", names.APERTUS, fixed={"hidden_act": ("xielu",), "attention_bias": (False,)}, learned=_XIELU
    ),
    "NemotronForCausalLM": Family(
        "nemotron",
        names.LLAMA,
        dict.fromkeys(("attn_norm.weight", "ffn_norm.weight", "output_norm.weight"), edits.plus_one),
        keys.nemotron,
        fixed=_RELU2,
        defaults={"partial_rotary_factor": 0.5},
    ),
    "PhiForCausalLM": Family("phi2", names.PHI2, fixed=_GELU | {"qk_layernorm": (False,)}),
    "OlmoForCausalLM": Family("olmo", names.LLAMA, _INTERLEAVED, keys.olmo, fixed=_SILU),
    "OlmoeForCausalLM": Family(
        "olmoe", names.QWEN3_MOE, fixed=_SILU | {"norm_topk_prob": (False,), "clip_qkv": (None,)}
    ),
    "Ernie4_5ForCausalLM": Family("ernie4_5", names.LLAMA, fixed=_SILU),
    "HunYuanDenseV1ForCausalLM": Family("hunyuan-dense", names.HUNYUAN, keys=keys.hunyuan, fixed=_SILU),
    "Dots1ForCausalLM": Family(
        "dots1", names.DOTS1, keys=keys.glm4_moe, fixed=_SILU | {"n_group": (1,), "topk_group": (1,)}
    ),
    "GptOssForCausalLM": Family(
        "gpt-oss",
        names.GPT_OSS,
        {"ffn_down_exps": edits.transpose_experts},
        keys.gpt_oss,
        parts={"ffn_gate_exps": edits.even, "ffn_up_exps": edits.odd},
        fixed=_SILU | {"swiglu_alpha": (1.702,), "swiglu_limit": (7.0,)},
        windows=True,
    ),
    "Lfm2ForCausalLM": _LFM2,
    "GPTBigCodeForCausalLM": Family(
        "starcoder",
        names.GPT2,
        keys=keys.starcoder,
        fixed=_GELU | {"multi_query": (True,), "scale_attn_weights": (True,)},
        rope=False,
    ),
    "MambaForCausalLM": _MAMBA,
    "FalconMambaForCausalLM": _MAMBA,
    "BertModel": _BERT,
    "BertForMaskedLM": _BERT,
    "RobertaModel": replace(_BERT, edits={"position_embd": edits.after_padding}, pads=True),
    "XLMRobertaModel": replace(_BERT, edits={"position_embd": edits.after_padding}, pads=True),
    "EuroBertModel": _EUROBERT,
    "EuroBertForMaskedLM": _EUROBERT,
    "ModernBertModel": _MODERN_BERT,
    "ModernBertForMaskedLM": _MODERN_BERT,
    "ModernBertForSequenceClassification": replace(
        _MODERN_BERT,
        names=names.MODERN_BERT_RANKER,
        keys=keys.modern_bert_ranker,
        fixed={**_MODERN_BERT.fixed, "classifier_bias": (False,), "classifier_activation": ("gelu",)},
        ignored=None,
    ),
}


def family_of(settings: Settings) -> Family:
    """Return the family of the class in config.json. Raises UnsupportedModel if there is none."""
    if (found := _named(settings)) is not None:
        return found
    if any(name in FAMILIES for name in settings.classes):
        raise UnsupportedModel(
            f"config.json: the text model's model_type is {settings.text_kind!r}, which llamina cannot convert inside "
            f"{settings.classes[0]}: {', '.join(_INSIDE)} are known"
        )
    given = ", ".join(settings.classes) or settings.get("model_type", "nothing")
    near = difflib.get_close_matches(given, FAMILIES, 3, 0.5) or list(FAMILIES)
    raise UnsupportedModel(
        f"config.json names {given}, which llamina cannot convert; the nearest are {', '.join(near)}"
    )


def assumed(settings: Settings) -> Mapping[str, Any]:
    """Return transformers' defaults for what the text model's settings leave out, as far as the model is known."""
    found = _named(settings)
    return {} if found is None else found.defaults


def _named(settings: Settings) -> Family | None:
    found = next((FAMILIES[name] for name in settings.classes if name in FAMILIES), None)
    if found in (_LLAMA_INSIDE, _MISTRAL_INSIDE, _QWEN2_INSIDE) and settings.text_kind is not None:
        return _INSIDE.get(settings.text_kind)
    return found
