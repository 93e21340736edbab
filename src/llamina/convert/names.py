"""Hugging Face's names of modules → GGUF's, per family. `*` is a layer; a second `*` is stacked (experts, heads).

Names are without the prefix of the decoder's wrapper (`model.`, `transformer.`, ...). Suffixes `.weight` and `.bias`
are removed for the lookup and appended to the result. Several results, separated by spaces, each take a part of the
tensor (see PARTS in edits.py).
"""

import re

WRAPPERS = re.compile(
    r"^(?:thinker\.)?(model\.language_model\.|model\.text_model\.|language_model\.model\.|language_model\.|model\.|transformer\."
    r"|gpt_neox\.|backbone\.|bert\.|roberta\.|ernie\.)"
)
# Masks and tables that are computed, and parts of multimodal models.
UNUSED = re.compile(
    r"(rotary_emb\.inv_freq|\.attn\.bias|\.attn\.masked_bias|\.attention\.bias|\.attention\.masked_bias|position_ids)$"
)
MULTIMODAL = re.compile(
    r"^(thinker\.)?(model\.)?((talker|token2wav|vision_tower|vision_model|multi_modal_projector|connector|audio_tower|visual|embed_vision|embed_audio|mlp1"
    r"|aligner|vqmodel|generation_\w+)\.|image_newline$)"
)


def _in_layers(prefix: str, names: dict[str, str]) -> dict[str, str]:
    return {
        f"{prefix}.*.{theirs}": " ".join(f"blk.*.{name}" for name in ours.split()) for theirs, ours in names.items()
    }


_ENDS = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
_ATTENTION = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
_MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.*.gate_proj": "ffn_gate_exps",
    "mlp.experts.*.up_proj": "ffn_up_exps",
    "mlp.experts.*.down_proj": "ffn_down_exps",
    "mlp.experts.gate_up_proj": "ffn_gate_exps.weight ffn_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
}
_QK_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
_LLAMA = _ATTENTION | _MLP | {"post_attention_layernorm": "ffn_norm"}

LLAMA = _ENDS | _in_layers("layers", _LLAMA)
MIXTRAL = LLAMA | _in_layers(
    "layers",
    {
        "block_sparse_moe.gate": "ffn_gate_inp",
        "block_sparse_moe.experts.*.w1": "ffn_gate_exps",
        "block_sparse_moe.experts.*.w3": "ffn_up_exps",
        "block_sparse_moe.experts.*.w2": "ffn_down_exps",
    },
)
QWEN3 = LLAMA | _in_layers("layers", _QK_NORMS)
QWEN2_MOE = LLAMA | _in_layers(
    "layers",
    _EXPERTS
    | {
        "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
        "mlp.shared_expert.up_proj": "ffn_up_shexp",
        "mlp.shared_expert.down_proj": "ffn_down_shexp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    },
)
QWEN3_MOE = QWEN3 | _in_layers("layers", _EXPERTS)
GEMMA2 = _ENDS | _in_layers(
    "layers",
    _ATTENTION
    | _MLP
    | {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
)
GEMMA3 = GEMMA2 | _in_layers("layers", _QK_NORMS)
_PER_LAYER = {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
} | _in_layers(
    "layers",
    {
        "per_layer_input_gate": "inp_gate",
        "per_layer_projection": "proj",
        "post_per_layer_input_norm": "post_norm",
    },
)
GEMMA4 = (
    GEMMA3
    | _PER_LAYER
    | _in_layers(
        "layers",
        {
            "layer_scalar": "layer_output_scale.weight",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "router.proj": "ffn_gate_inp",
            "router.scale": "ffn_gate_inp.scale",
            "router.per_expert_scale": "ffn_down_exps.scale",
            "experts.gate_up_proj": "ffn_gate_up_exps.weight",
            "experts.down_proj": "ffn_down_exps.weight",
        },
    )
)
GEMMA3N = (
    GEMMA3
    | _PER_LAYER
    | {"altup_projections.*": "altup_proj", "altup_unembed_projections.*": "altup_unembd_proj"}
    | _in_layers(
        "layers",
        {
            "altup.correct_output_scale": "altup_correct_scale.weight",
            "altup.correction_coefs": "altup_correct_coef",
            "altup.prediction_coefs": "altup_predict_coef",
            "altup.modality_router": "altup_router",
            "altup.router_norm": "altup_router_norm",
            "laurel.linear_left": "laurel_l",
            "laurel.linear_right": "laurel_r",
            "laurel.post_laurel_norm": "laurel_post_norm",
        },
    )
)
PHI3 = LLAMA | _in_layers("layers", {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"})
COHERE = _ENDS | _in_layers("layers", _ATTENTION | _MLP | _QK_NORMS)
OLMO2 = _ENDS | _in_layers(
    "layers",
    _ATTENTION
    | _MLP
    | _QK_NORMS
    | {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"},
)
STABLELM = LLAMA | _in_layers(
    "layers", {"self_attn.q_layernorm.norms.*": "attn_q_norm", "self_attn.k_layernorm.norms.*": "attn_k_norm"}
)
STARCODER2 = LLAMA | _in_layers("layers", {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
DEEPSEEK = LLAMA | _in_layers(
    "layers",
    _EXPERTS
    | {
        "self_attn.q_a_proj": "attn_q_a",
        "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b",
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm",
        "self_attn.kv_b_proj": "attn_k_b attn_v_b",
        "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
        "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
        "mlp.shared_experts.up_proj": "ffn_up_shexp",
        "mlp.shared_experts.down_proj": "ffn_down_shexp",
    },
)

SEED_OSS = LLAMA | _in_layers("layers", {"post_attention_layernorm": "post_attention_norm"})
GLM4 = LLAMA | _in_layers(
    "layers",
    {
        "post_self_attn_layernorm": "post_attention_norm",
        "post_mlp_layernorm": "post_ffw_norm",
        "mlp.gate_up_proj": "ffn_up",
    },
)
DOTS1 = DEEPSEEK | _in_layers("layers", _QK_NORMS)
GLM4_MOE = DOTS1 | _in_layers("layers", {"post_attention_layernorm": "post_attention_norm"})
GRANITE_MOE = LLAMA | _in_layers(
    "layers",
    {
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "block_sparse_moe.input_linear": "ffn_gate_exps ffn_up_exps",
        "block_sparse_moe.output_linear": "ffn_down_exps",
        "shared_mlp.input_linear": "ffn_gate_shexp ffn_up_shexp",
        "shared_mlp.output_linear": "ffn_down_shexp",
    },
)
LLAMA4 = LLAMA | _in_layers(
    "layers",
    {f"feed_forward.{theirs}_proj": f"ffn_{theirs}" for theirs in ("gate", "up", "down")}
    | {f"feed_forward.shared_expert.{theirs}_proj": f"ffn_{theirs}_shexp" for theirs in ("gate", "up", "down")}
    | {
        "feed_forward.router": "ffn_gate_inp",
        "feed_forward.experts.gate_up_proj": "ffn_gate_exps.weight ffn_up_exps.weight",
        "feed_forward.experts.down_proj": "ffn_down_exps.weight",
    },
)
APERTUS = QWEN3 | _in_layers("layers", {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"})
HUNYUAN = LLAMA | _in_layers(
    "layers", {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}
)
PHI2 = LLAMA | {"final_layernorm": "output_norm"}
PHI2 |= _in_layers("layers", {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"})
GPT_OSS = SEED_OSS | _in_layers(
    "layers",
    {
        "self_attn.sinks": "attn_sinks.weight",
        "mlp.router": "ffn_gate_inp",
        "mlp.experts.gate_up_proj": "ffn_gate_exps.weight ffn_up_exps.weight",
        "mlp.experts.gate_up_proj_bias": "ffn_gate_exps.bias ffn_up_exps.bias",
        "mlp.experts.down_proj": "ffn_down_exps.weight",
        "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    },
)
LFM2 = {"embed_tokens": "token_embd", "embedding_norm": "token_embd_norm", "lm_head": "output"} | _in_layers(
    "layers",
    {
        "operator_norm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "conv.conv": "shortconv.conv",
        "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj",
        "ffn_norm": "ffn_norm",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w2": "ffn_down",
        "feed_forward.w3": "ffn_up",
    },
)
FALCON = {"word_embeddings": "token_embd", "ln_f": "output_norm", "lm_head": "output"} | _in_layers(
    "h",
    {
        "input_layernorm": "attn_norm",
        "ln_mlp": "attn_norm",
        "ln_attn": "attn_norm_2",
        "self_attention.query_key_value": "attn_qkv",
        "self_attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    },
)
BLOOM = (
    FALCON
    | {"word_embeddings_layernorm": "token_embd_norm"}
    | _in_layers("h", {"post_attention_layernorm": "ffn_norm"})
)
GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"} | _in_layers(
    "h",
    {
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
)
GPT_NEOX = {"embed_in": "token_embd", "final_layer_norm": "output_norm", "embed_out": "output"} | _in_layers(
    "layers",
    {
        "input_layernorm": "attn_norm",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    },
)
MAMBA2 = {"embeddings": "token_embd", "norm_f": "output_norm", "lm_head": "output"} | _in_layers(
    "layers",
    {
        "norm": "attn_norm",
        "mixer.in_proj": "ssm_in",
        "mixer.conv1d": "ssm_conv1d",
        "mixer.dt_bias": "ssm_dt.bias",
        "mixer.A_log": "ssm_a",
        "mixer.D": "ssm_d",
        "mixer.norm": "ssm_norm",
        "mixer.out_proj": "ssm_out",
    },
)
MAMBA = MAMBA2 | _in_layers("layers", {"mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt"})
BERT = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
} | _in_layers(
    "encoder.layer",
    {
        "attention.self.query": "attn_q",
        "attention.self.key": "attn_k",
        "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm",
    },
)
MODERN_BERT = {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    "final_norm": "output_norm",
} | _in_layers(
    "layers",
    {
        "attn_norm": "attn_norm",
        "attn.Wqkv": "attn_qkv",
        "attn.Wo": "attn_output",
        "mlp_norm": "ffn_norm",
        "mlp.Wi": "ffn_up",
        "mlp.Wo": "ffn_down",
    },
)
MODERN_BERT_RANKER = MODERN_BERT | {"head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
