"""Recurrent and hybrid models as real files have them, where the golden ones are too small to show it: against
llama.cpp run beside us."""

from collections.abc import Callable
from pathlib import Path

import pytest
from layered import Tensors, Variant, compare, no

Golden = Callable[[str], Path]


def experts(latent: int = 256, suffixes: str = "gate up down") -> Tensors:
    shapes = {"gate": [latent, 128, 8], "up": [latent, 128, 8], "down": [128, latent, 8]}
    return {"ffn_gate_inp.weight": [256, 8]} | {f"ffn_{x}_exps.weight": shapes[x] for x in suffixes.split()}


def kimi_delta(n: int) -> Tensors:
    """The tensors of Kimi's delta attention with so many heads of 128."""
    square: Tensors = {f"attn_{x}.weight": [128, 128 * n] for x in "qkv"}
    kernels: Tensors = {f"ssm_conv1d_{x}.weight": [4, 1, 128 * n] for x in "qkv"}
    rates: Tensors = {"ssm_a": [1, n], "ssm_dt.bias": [128 * n], "ssm_beta.weight": [128, n]}
    ranks: Tensors = {f"ssm_{x}_b.weight": [128, 128 * n] for x in "fg"}
    unbiased = no(*(f"attn_{x}.bias" for x in "qkv"))
    return unbiased | square | kernels | rates | ranks | {"attn_output.weight": [128 * n, 128]}


def latent(n: int) -> Tensors:
    """Those of latent attention with so many heads."""
    k_v: Tensors = {"attn_k_b.weight": [128, 512, n], "attn_v_b.weight": [512, 128, n]}
    return k_v | {"attn_q.weight": [128, 192 * n], "attn_output.weight": [128 * n, 128]}


LOW_RANK_Q: Tensors = no("attn_q.weight") | {"attn_q_b.weight": [512, 384]}
FULL_RANK_Q = no("attn_q_a.weight", "attn_q_a_norm.weight", "attn_q_b.weight")
GROUPED_DELTA = {"ssm.group_count": 2, "ssm.state_size": 64, "attention.head_count_kv": 1}
ONE_KV: Tensors = {f"attn_{x}.{y}": s for x in "kv" for y, s in (("weight", [256, 128]), ("bias", [128]))}
HALF_HEADS = {"attention.head_count": 4} | dict.fromkeys(
    ("attention.key_length", "attention.value_length", "rope.dimension_count"), 64
)
NEXT = {"ssm.time_step_rank": 4, "rope.dimension_count": 32, "attention.recurrent_layers": [1, 1, 0], **GROUPED_DELTA}
NEXT_DELTA: Tensors = {
    "ssm_norm.weight": [64], "ssm_conv1d.weight": [4, 512], "ssm_dt.bias": [4], "ssm_a": [4], "ssm_ba.weight": [256, 8]
}  # fmt: skip
NEMOTRON = {
    "attention.head_count": [2, 0, 0, 0], "attention.head_count_kv": [2, 0, 0, 0],
    "feed_forward_length": [0, 0, 128, 128], "expert_feed_forward_length": 128, "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 96, "expert_count": 8, "expert_used_count": 3, "expert_weights_norm": True,
    "expert_weights_scale": 2.5, "expert_group_count": 4, "expert_group_used_count": 2,
}  # fmt: skip
NEMOTRON_EXPERTS: Tensors = {
    **no("ffn_up.weight", "ffn_up.bias", "ffn_down.weight", "ffn_down.bias"),
    "exp_probs_b.bias": [8], "ffn_up_shexp.weight": [256, 96], "ffn_down_shexp.weight": [96, 256],
}  # fmt: skip
K3_DELTA = kimi_delta(2) | no("ssm_g_b.weight") | {"ssm_g.weight": [128, 256], "ssm_a": [2]}
K3_LATENT = latent(2) | LOW_RANK_Q | {"attn_gate.weight": [128, 256]}
NO_SCORES = no("attn_res_score.weight", "ffn_res_score.weight")
VARIANTS = {
    "mamba, normed": Variant("mamba-dense", {"ssm.dt_b_c_rms": True}),
    "granitehybrid, experts": Variant(
        "granitehybrid-dense",
        {
            "attention.head_count": 2, "attention.head_count_kv": [0, 1, 0], "ssm.time_step_rank": 8,
            "ssm.group_count": 1, "expert_count": 8, "expert_used_count": 3, "expert_shared_feed_forward_length": 96,
            "feed_forward_length": 128, "rope.scaling.finetuned": False, "logit_scale": 4.0, "embedding_scale": 6.0,
            "attention.scale": 0.02, "residual_scale": 0.3,
        },
        (1, 0, 1),
        {
            kind: changes
            | experts()
            | no(*(f"ffn_{x}.{y}" for x in ("gate", "up", "down") for y in ("weight", "bias")))
            | {"ffn_gate_shexp.weight": [256, 96], "ffn_up_shexp.weight": [256, 96], "ffn_down_shexp.weight": [96, 256]}
            for kind, changes in (
                (0, ONE_KV),
                (1, {
                    "ssm_norm.weight": [512], "ssm_in.weight": [256, 1288], "ssm_conv1d.weight": [4, 768],
                    "ssm_conv1d.bias": [768], "ssm_a": [1, 8], "ssm_d": [1, 8], "ssm_dt.bias": [8],
                }),
            )
        },
    ),
    "falcon-h1, groups": Variant(
        "falcon-h1-dense",
        HALF_HEADS | {"attention.head_count_kv": 2, "ssm.time_step_rank": 16, "ssm.state_size": 64},
        (0, 0),
        {0: ONE_KV | no("ssm_norm.weight") | {
            "ssm_in.weight": [256, 1296], "ssm_conv1d.weight": [4, 768], "ssm_conv1d.bias": [768],
            "ssm_a": [1, 16], "ssm_d": [1, 16], "ssm_dt.bias": [16],
        }},
        drop=("rope_freqs.weight",),
    ),
    "nemotron_h_moe, latent experts": Variant(
        "nemotron_h_moe-dense", NEMOTRON | {"moe_latent_size": 64}, (0, 1, 2, 2),
        {2: NEMOTRON_EXPERTS | experts(64, "up down")
            | {"ffn_latent_down.weight": [256, 64], "ffn_latent_up.weight": [64, 256]}},
    ),
    "nemotron_h_moe, layer by layer": Variant(
        "nemotron_h_moe-dense", NEMOTRON | {"expert_used_count": [0, 0, 2, 4]}, (0, 1, 2, 2),
        {2: NEMOTRON_EXPERTS | experts(256, "up down")},
    ),
    "lfm2, fewer keys": Variant(
        "lfm2-dense", HALF_HEADS | {"attention.head_count_kv": [0, 2, 0], "attention.sliding_window": 8}, (1, 0, 1),
        {0: ONE_KV | {"attn_q_norm.weight": [64], "attn_k_norm.weight": [64]}},
    ),
    "plamo2, heads": Variant(
        "plamo2-dense", HALF_HEADS | {"attention.head_count_kv": [0, 2, 0], "ssm.time_step_rank": 8}, (1, 0, 1),
        {
            0: {"attn_q_norm.weight": [64, 4], "attn_k_norm.weight": [64, 2], "attn_qkv.weight": [256, 512]},
            1: {"ssm_dt.weight": [64, 8], "ssm_a": [8], "ssm_d": [8], "ssm_dt.bias": [8]},
        },
    ),
    "qwen3next, groups": Variant(
        "qwen3next-moe", NEXT, (0, 0, 1),
        {0: no("ssm_in.weight") | NEXT_DELTA | {"attn_qkv.weight": [256, 512]}, 1: ONE_KV},
    ),
    "qwen3next, first files": Variant(
        "qwen3next-moe", NEXT, (0, 0, 1),
        {0: no("attn_qkv.weight", "attn_gate.weight") | NEXT_DELTA | {"ssm_in.weight": [256, 768]}, 1: ONE_KV},
    ),
    "qwen35, groups": Variant(
        "qwen35-dense",
        GROUPED_DELTA | {
            "ssm.time_step_rank": 6, "ssm.inner_size": 384, "rope.dimension_count": 64,
            "rope.dimension_sections": [11, 11, 10, 0], "attention.recurrent_layers": None,
            "full_attention_interval": 3,
        },
        (0, 0, 1),
        {
            0: {
                "ssm_norm.weight": [64], "ssm_conv1d.weight": [4, 640], "ssm_dt.bias": [6], "ssm_a": [6],
                "ssm_alpha.weight": [256, 6], "ssm_beta.weight": [256, 6], "ssm_out.weight": [384, 256],
                "attn_qkv.weight": [256, 640], "attn_gate.weight": [256, 384],
            },
            1: ONE_KV,
        },
    ),
    "qwen35moe, drafting layer": Variant(
        "qwen35moe-moe", {"nextn_predict_layers": 1, "attention.recurrent_layers": [1, 0, 0]}, (0, 1, 1)
    ),
    "minimax-01, heads": Variant(
        "minimax-01-moe",
        HALF_HEADS | {
            "attention.head_count_kv": 2, "rope.dimension_count": 32, "attention.recurrent_layers": None,
            "full_attention_interval": 3,
        },
        (0, 0, 1, 0),
        {1: ONE_KV},
    ),
    "kimi-linear, heads": Variant(
        "kimi-linear-moe",
        {"attention.head_count": 3, "attention.head_count_kv": [1, 0, 0], "expert_weights_scale": 2.4},
        (0, 1, 1),
        {0: latent(3), 1: kimi_delta(3)},
    ),
    "kimi-linear, fused": Variant(
        "kimi-linear-moe",
        {"attention.head_count": 3, "attention.head_count_kv": [1, 0]},
        (0, 1),
        {0: latent(3), 1: kimi_delta(3) | no(*(f"attn_{x}.weight" for x in "qkv")) | {"attn_qkv.weight": [128, 1152]}},
    ),
    "kimi-k3, streams": Variant(
        "kimi-k3-moe",
        {"attention.head_count": 2, "attention.head_count_kv": [1, 0, 0, 0], "attn_res.block_size": 2,
         "expert_weights_norm": True, "expert_weights_scale": 1.7},
        (0, 1, 1, 1),
        {0: K3_LATENT, 1: K3_DELTA},
    ),
    "kimi-k3, without most of it": Variant(
        "kimi-k3-moe",
        {"attention.head_count": 2, "attention.head_count_kv": [1, 0, 0], "attn_res.block_size": 0,
         "kda.gate_lower_bound": None, "expert_latent_length": None, "attention.q_lora_rank": None,
         "activation.situ_linear_beta": 0.0},
        (0, 1, 1),
        {
            0: latent(2) | NO_SCORES | FULL_RANK_Q | no("attn_gate.weight"),
            1: K3_DELTA | NO_SCORES | no(*(f"ffn_routed_{x}.weight" for x in ("down", "up", "norm")))
            | {"ffn_gate_exps.weight": [128, 192, 8], "ffn_up_exps.weight": [128, 192, 8],
               "ffn_down_exps.weight": [192, 128, 8]},
        },
        drop=("output_res_score.weight",),
    ),
    "bailingmoe3, text": Variant(
        "bailingmoe3-moe",
        {
            "attention.head_count": 2, "attention.head_count_kv": [1, 0, 0], "attention.q_lora_rank": None,
            "rope.dimension_sections": None, "expert_weights_norm": True, "expert_weights_scale": 2.5,
            "expert_group_count": 4, "expert_group_used_count": 2,
            "swiglu_clamp_exp": [0.0, 0.5, 0.0], "swiglu_clamp_shexp": [0.3, 0.0, 0.2],
        },
        (0, 1, 1),
        {
            0: latent(2) | FULL_RANK_Q | {"attn_gate.weight": [128, 2]},
            1: kimi_delta(2) | no("ssm_f_b.weight", "ssm_g_b.weight")
            | {"ssm_f_a.weight": [128, 256], "ssm_g_a.weight": [128, 256]},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("label", VARIANTS)
def test_variant(label: str, tmp_path: Path) -> None:
    compare(VARIANTS[label], tmp_path / "variant.gguf")
