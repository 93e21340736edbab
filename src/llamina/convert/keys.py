"""Metadata of particular families, as functions of the settings. A key with the value None is removed."""

import math
from statistics import NormalDist

from llamina.convert.edits import falcon_kv_heads
from llamina.convert.rope import Rope
from llamina.convert.settings import Settings, mapping
from llamina.errors import ModelFileError, UnsupportedModel

Keys = dict[str, object]
SOFTMAX, SIGMOID = 1, 2  # expert_gating_func
_RANK, _CLASSIFIED = 4, {"mean": 1, "cls": 2}  # pooling_type


def nothing(settings: Settings) -> Keys:
    return {}


def experts(settings: Settings) -> Keys:
    shared = settings.get("shared_expert_intermediate_size")
    own: Keys = {"expert_feed_forward_length": settings.count("moe_intermediate_size")}
    return own | ({} if shared is None else {"expert_shared_feed_forward_length": shared})


def gemma2(settings: Settings) -> Keys:
    _check_query_scale(settings, wide=46)
    return {
        "attn_logit_softcapping": settings.number("attn_logit_softcapping"),
        "final_logit_softcapping": settings.number("final_logit_softcapping"),
    }


def gemma3(settings: Settings) -> Keys:
    _check_query_scale(settings, wide=62)
    return {"final_logit_softcapping": settings.given("final_logit_softcapping")}


def gemma4(settings: Settings) -> Keys:
    """Return the keys of layers of two kinds, of layers without keys and values, and of experts."""
    windowed, layers = settings.windowed or [], range(settings.layers)
    if len(windowed) != settings.layers:
        raise ModelFileError(f"config.json: layer_types has {len(windowed)} entries for {settings.layers} layers")
    whole, shared = settings.global_head_dim, settings.count("num_kv_shared_layers", 0, least=0)
    listed = mapping(settings.get("per_layer_config"))
    default = settings.kv_heads
    if settings.get("attention_k_eq_v", False):
        default = settings.count("num_global_key_value_heads", default)
    kv_heads = [
        settings.kv_heads
        if windowed[layer]
        else Settings(mapping(listed.get(str(layer)))).count("num_key_value_heads", default)
        for layer in layers
    ]
    inner = settings.count("intermediate_size")
    wide = 2 * inner if settings.get("use_double_wide_mlp", False) else inner
    keys: Keys = {
        "attention.head_count_kv": kv_heads,
        "attention.key_length": whole,
        "attention.value_length": whole,
        "attention.key_length_swa": settings.head_dim,
        "attention.value_length_swa": settings.head_dim,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": settings.count("hidden_size_per_layer_input", 0, least=0),
        "feed_forward_length": [inner if layer < settings.layers - shared else wide for layer in layers],
        "final_logit_softcapping": settings.number("final_logit_softcapping", 0.0),
        "rope.dimension_count": whole,
        "rope.dimension_count_swa": settings.head_dim,
    }
    if not settings.get("enable_moe_block", False):
        return keys | {"expert_count": None}
    return keys | {
        "expert_used_count": settings.count("top_k_experts"),
        "expert_feed_forward_length": settings.count("moe_intermediate_size"),
    }


def gemma3n(settings: Settings) -> Keys:
    """Return the keys of residual streams, of gates that are cut off, and of layers without keys and values."""
    cut = settings.get("activation_sparsity_pattern", [0.0] * settings.layers)
    if not isinstance(cut, list) or len(cut) != settings.layers or not all(0 <= part < 1 for part in cut):
        raise ModelFileError(
            f"config.json: activation_sparsity_pattern is {cut!r}: must have a part of 1 for each of "
            f"{settings.layers} layers"
        )
    inner = settings.get("intermediate_size")
    return {
        "feed_forward_length": inner[0] if isinstance(inner, list) and len({*inner}) == 1 else inner,
        "altup.active_idx": settings.count("altup_active_idx", 0, least=0),
        "altup.num_inputs": settings.count("altup_num_inputs", 4),
        "embedding_length_per_layer_input": settings.count("hidden_size_per_layer_input"),
        "attention.shared_kv_layers": settings.count("num_kv_shared_layers", 15, least=0),
        "activation_sparsity_scale": [NormalDist().inv_cdf(part) if part else -math.inf for part in cut],
    }


def _check_query_scale(settings: Settings, wide: int) -> None:
    """Raise UnsupportedModel unless the scale of queries is the implied one: GGUF has no key for it."""
    implied = settings.width // settings.heads if settings.layers == wide else settings.head_dim
    if (given := settings.get("query_pre_attn_scalar", implied)) != implied:
        raise UnsupportedModel(f"config.json: query_pre_attn_scalar is {given}, and GGUF implies {implied}")


def phi3(settings: Settings) -> Keys:
    original = settings.count("original_max_position_embeddings", settings.context)
    window = settings.count("sliding_window", 0, least=0)
    return {"rope.scaling.original_context_length": original, "attention.sliding_window": window}


def cohere(settings: Settings) -> Keys:
    return {
        "logit_scale": settings.number("logit_scale"),
        "context_length": settings.count("model_max_length max_position_embeddings"),
        "rope.scaling.type": "none",
    }


def falcon(settings: Settings) -> Keys:
    return {
        "tensor_data_layout": "jploski",
        "attention.head_count_kv": falcon_kv_heads(settings),
        "feed_forward_length": settings.count("ffn_hidden_size", 4 * settings.width),
    }


def four_times(settings: Settings) -> Keys:
    return {"feed_forward_length": settings.count("n_inner", 4 * settings.width)}


def residual(settings: Settings) -> Keys:
    return {"use_parallel_residual": bool(settings.get("use_parallel_residual", False))}


def neox(settings: Settings) -> Keys:
    return {"use_parallel_residual": bool(settings.get("use_parallel_residual", True)), "attention.head_count_kv": None}


def granite(settings: Settings) -> Keys:
    return {
        "attention.scale": settings.number("attention_multiplier", 1.0),
        "embedding_scale": settings.number("embedding_multiplier", 1.0),
        "residual_scale": settings.number("residual_multiplier", 1.0),
        "logit_scale": settings.number("logits_scaling", 1.0),
    }


def deepseek(settings: Settings, gating: int) -> Keys:
    latent, rope_dims = settings.count("kv_lora_rank", 512), settings.count("qk_rope_head_dim")
    experts = settings.get("n_routed_experts") is not None
    own: Keys = {
        "attention.head_count_kv": 1,  # every head reads the one latent
        "attention.kv_lora_rank": latent,
        "attention.q_lora_rank": settings.get("q_lora_rank"),
        "attention.key_length": latent + rope_dims,
        "attention.value_length": latent,
        "attention.key_length_mla": settings.count("qk_nope_head_dim") + rope_dims,
        "attention.value_length_mla": settings.count("v_head_dim"),
        "rope.dimension_count": rope_dims,
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
        own |= {"expert_group_count": groups, "expert_group_used_count": settings.count("topk_group")}
    if mscale := settings.rope.number("mscale_all_dim", 0.0):
        own["rope.scaling.yarn_log_multiplier"] = 0.1 * mscale
    return own


def mamba2(settings: Settings) -> Keys:
    own = _recurrent(settings, settings.count("state_size", 128))
    return own | {
        "ssm.time_step_rank": settings.count("expand", 2) * settings.width // settings.count("head_dim", 64),
        "ssm.group_count": settings.count("n_groups", 1),
    }


def _recurrent(settings: Settings, state: int) -> Keys:
    """Return the keys of models without attention, whose context has no limit."""
    return {
        "context_length": 1 << 20,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.head_count_kv": None,
        "attention.key_length": None,
        "attention.value_length": None,
        "attention.layer_norm_rms_epsilon": settings.number("layer_norm_epsilon rms_norm_eps", 1e-5),
        "attention.layer_norm_epsilon": None,
        "ssm.conv_kernel": settings.count("conv_kernel", 4),
        "ssm.inner_size": settings.count("expand", 2) * settings.width,
        "ssm.state_size": state,
    }


def bert(settings: Settings) -> Keys:
    return {"attention.causal": False}


def gemma_embedding(settings: Settings) -> Keys:
    return gemma3(settings) | {"attention.causal": False}


def modern_bert(settings: Settings) -> Keys:
    """Return the window, which config.json counts from end to end, as GGUF does, and the layers that see all."""
    return {
        "attention.causal": False,
        "attention.layer_norm_epsilon": settings.number("norm_eps", 1e-5),
        "attention.sliding_window": settings.count("local_attention", 128),
        "attention.sliding_window_pattern": settings.windowed or settings.count("global_attn_every_n_layers", 3),
        "hidden_activation": settings.get("hidden_activation", "gelu"),
    }


def modern_bert_ranker(settings: Settings) -> Keys:
    """Return the keys of a classifier, and what it scores: the first token, or the mean. Raises UnsupportedModel."""
    kind, labels = settings.get("classifier_pooling", "cls"), settings.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    if kind not in _CLASSIFIED:
        raise UnsupportedModel(f"config.json: classifier_pooling is {kind!r}: {' and '.join(_CLASSIFIED)} are known")
    return modern_bert(settings) | {
        "pooling_type": _RANK,
        "classifier.pooling_type": _CLASSIFIED[kind],
        "classifier.output_labels": [str(label) for label in mapping(labels).values()],
    }


def gpt_oss(settings: Settings) -> Keys:
    return {"expert_feed_forward_length": settings.count("intermediate_size")}


def glm4_moe(settings: Settings) -> Keys:
    return shared_experts(settings) | {"expert_gating_func": SIGMOID}


def shared_experts(settings: Settings) -> Keys:
    """Return the keys of routed and shared experts after some dense layers."""
    return {
        "expert_feed_forward_length": settings.count("moe_intermediate_size"),
        "expert_shared_count": settings.count("n_shared_experts", 0, least=0),
        "leading_dense_block_count": settings.count("first_k_dense_replace", 0, least=0),
        "expert_weights_scale": settings.number("routed_scaling_factor", 1.0),
        "expert_weights_norm": bool(settings.get("norm_topk_prob", False)),
    }


def granite_moe(settings: Settings) -> Keys:
    shared = settings.get("shared_intermediate_size")
    return granite(settings) | ({"expert_shared_feed_forward_length": shared} if shared else {})


def nemotron(settings: Settings) -> Keys:
    return {"attention.layer_norm_epsilon": settings.number("norm_eps", 1e-5)}


def olmo(settings: Settings) -> Keys:
    return {"attention.layer_norm_epsilon": 1e-5, "attention.clamp_kqv": settings.given("clip_qkv")}


def exaone4(settings: Settings) -> Keys:
    if settings.get("sliding_window") and settings.layers != 64:  # readers infer the windows of the 32B from its depth
        raise UnsupportedModel(
            f"config.json: exaone4 in GGUF has windows with 64 layers only, and this model has {settings.layers}"
        )
    return {}


def hunyuan(settings: Settings) -> Keys:
    """Return the RoPE base scaled by `alpha`, if there is one (NTK-aware scaling)."""
    alpha = settings.rope.given("alpha")
    if alpha is None:
        return {}
    base = settings.rope.number("rope_theta", settings.number("rope_theta", 10000.0))
    dims = max(settings.head_dim, 3)
    return {"rope.freq_base": base * abs(alpha) ** (dims / (dims - 2))}


def lfm2(settings: Settings) -> Keys:
    inner = settings.count("block_ff_dim intermediate_size")
    if settings.get("block_auto_adjust_ff_dim", True):
        multiple = settings.count("block_multiple_of", 256)
        inner = int(settings.number("block_ffn_dim_multiplier", 1.0) * int(2 * inner / 3))
        inner = -(-inner // multiple) * multiple
    kinds, attending = settings.get("layer_types"), settings.get("full_attn_idxs")
    if kinds is None and isinstance(attending, list):
        kinds = ["full_attention" if layer in attending else "conv" for layer in range(settings.layers)]
    if not isinstance(kinds, list) or len(kinds) != settings.layers:
        raise ModelFileError(
            f"config.json: layer_types is {kinds!r}: must have one entry for each of {settings.layers} layers"
        )
    return {
        "feed_forward_length": inner,
        "attention.head_count_kv": [0 if kind == "conv" else settings.kv_heads for kind in kinds],
        "attention.layer_norm_rms_epsilon": settings.number("norm_eps block_norm_eps", 1e-5),
        "shortconv.l_cache": settings.count("conv_L_cache", 3),
    }


def sections(settings: Settings) -> Keys:
    """Return M-RoPE's sections, of time, height, width and nothing else. Raises ModelFileError if there are none."""
    found, pairs = settings.rope.get("mrope_section"), Rope.read(settings).dims // 2
    if not isinstance(found, list) or len(found) != 3 or sum(found) != pairs:
        raise ModelFileError(f"config.json: mrope_section is {found!r}: must be three numbers with the sum {pairs}")
    return {"rope.dimension_sections": [*found, 0]}


def deep_sections(settings: Settings) -> Keys:
    """Return M-RoPE's sections, and how many layers get rows of a picture encoder's (DeepStack)."""
    layers = mapping(settings.get("vision_config")).get("deepstack_visual_indexes") or []
    return sections(settings) | {"n_deepstack_layers": len(layers)}


def deep_experts(settings: Settings) -> Keys:
    return experts(settings) | deep_sections(settings)


def llama4(settings: Settings) -> Keys:
    """Return the sizes of experts and of dense layers. Raises UnsupportedModel for layers that GGUF cannot express."""
    step, layers = settings.count("interleave_moe_layer_step", 1), range(settings.layers)
    implied = {
        "moe_layers": [layer for layer in layers if layer % step == step - 1],
        "no_rope_layers": [int(layer % 4 < 3) for layer in layers],
        "use_qk_norm": settings.count("num_local_experts", 16) != 128,
    }
    for name, value in implied.items():
        if (given := settings.get(name, value)) not in (value, []):
            raise UnsupportedModel(f"config.json: {name} is {given}, and llama4 in GGUF implies {value}")
    return {
        "interleave_moe_layer_step": step,
        "expert_feed_forward_length": settings.count("intermediate_size"),
        "feed_forward_length": settings.count("intermediate_size_mlp"),
    }


def starcoder(settings: Settings) -> Keys:
    return four_times(settings) | {"attention.head_count_kv": 1}


def mamba(settings: Settings) -> Keys:
    return _recurrent(settings, settings.count("state_size", 16)) | {
        "ssm.time_step_rank": settings.count("time_step_rank", -(-settings.width // 16)),
        "ssm.dt_b_c_rms": settings.get("model_type") == "falcon_mamba",
    }
