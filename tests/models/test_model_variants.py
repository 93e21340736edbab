"""What the golden models do not show: variants of them, against llama.cpp run beside us."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live import last_logits

import llamina
from golden import arch_models
from golden_facts import SPECS
from llamina.gguf import tensor_type, write

Golden = Callable[[str], Path]
TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 128, 40)]
NARROW = {256: 64, 384: 96, 768: 192, 128: 32, 64: 16}  # shapes of the golden models → of these
SIZES = {"embedding_length": 64, "feed_forward_length": 96} | dict.fromkeys(
    ("attention.key_length", "attention.value_length", "rope.dimension_count"), 32
)


@dataclass(frozen=True)
class Variant:
    """A golden model changed and, unless told otherwise, made narrow: heads of 32 elements, rotations of 16 pairs."""

    name: str
    metadata: dict[str, Any] = field(default_factory=dict)  # None takes a key away
    layers: int = 0  # all like the first
    drop: tuple[str, ...] = ()  # tensors by the beginnings of their names
    add: dict[str, list[int]] = field(default_factory=dict)  # tensors, GGUF's order of dimensions
    context: int = 256
    narrow: bool = True


def per_layer(layers: int, *tensors: tuple[str, list[int]]) -> dict[str, list[int]]:
    return {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in tensors}


FUSED = per_layer(2, ("attn_qkv.weight", [64, 192]), ("attn_qkv.bias", [192]))
SEPARATE = tuple(f"blk.{i}.attn_{x}." for i in range(2) for x in "qkv")
LONG = {"rope_factors_long.weight": [16], "rope_factors_short.weight": [16]}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
LONGROPE = {"rope.scaling.type": "longrope", "rope.scaling.attn_factor": 1.2}
THINNED = {
    "attention.head_count": [2, 2, 0, 2, 2],
    "attention.head_count_kv": [2, 0, 0, 0, 1],
    "feed_forward_length": [96, 96, 96, 0, 96],
}
VARIANTS = {
    "baichuan 7B": Variant("baichuan-dense", layers=32),
    "baichuan 13B": Variant("baichuan-dense", layers=40),
    "chatglm, fused": Variant("chatglm-dense", {"rope.dimension_count": 16}, drop=SEPARATE, add=FUSED),
    "codeshell, tied": Variant("codeshell-dense", drop=("token_embd.",)),
    "cohere2, windows": Variant(
        "cohere2-dense", {"attention.sliding_window_pattern": None, "attention.sliding_window": 8}, layers=5
    ),
    "cohere2, windows everywhere": Variant(
        "cohere2-dense", {"attention.sliding_window_pattern": 0, "attention.sliding_window": 8}, layers=3
    ),
    "command-r plus": Variant(
        "command-r-dense",
        {"logit_scale": 0.5},
        layers=64,
        add=per_layer(64, ("attn_q_norm.weight", [32, 2]), ("attn_k_norm.weight", [32, 2])),
    ),
    "deci, thinned": Variant(
        "deci-dense",
        THINNED,
        layers=5,
        drop=(*SEPARATE[3:], "blk.1.attn_output.bias", "blk.2.attn", "blk.3.", "blk.4.attn_k.", "blk.4.attn_v."),
        add={
            "blk.3.attn_norm.weight": [64],
            "blk.3.attn_output.weight": [64, 64],
            "blk.4.attn_k.weight": [64, 32],
            "blk.4.attn_v.weight": [64, 32],
        },
    ),
    "deepseek2, yarn": Variant("deepseek2-moe", YARN | {"rope.scaling.yarn_log_multiplier": 0.0707}, narrow=False),
    "exaone4 32B": Variant("exaone4-dense", {"attention.sliding_window": 8}, layers=64),
    "exaone4, drafting layer": Variant(
        "exaone4-dense",
        {"nextn_predict_layers": 1},
        layers=3,
        add={f"blk.2.nextn.{x}.weight": [*s, 64] for x, s in (("eh_proj", [128]), ("enorm", []), ("hnorm", []))},
    ),
    "falcon 7B": Variant(
        "falcon-dense",
        {"attention.head_count_kv": 1},
        drop=tuple(f"blk.{i}.attn_{x}" for i in range(2) for x in ("norm_2", "qkv")),
        add=per_layer(2, ("attn_qkv.weight", [64, 128])),
    ),
    "falcon, tied": Variant("falcon-dense", drop=("output.",)),
    "gemma3, yarn": Variant("gemma3-dense", YARN | {"rope.freq_base_swa": 100.0, "attention.sliding_window": 8}),
    "glm4, text": Variant("glm4-dense", {"rope.dimension_sections": None, "rope.dimension_count": 16}),
    "glm4, images": Variant("glm4-dense", {"rope.dimension_sections": [2, 3, 3, 0], "rope.dimension_count": 16}),
    "glm4, a fourth section": Variant("glm4-dense", {"rope.dimension_sections": [4, 4, 4, 4], "rope.freq_base": 4.0}),
    "gptneox, one after the other": Variant("gptneox-dense", {"use_parallel_residual": False}),
    "gptneox, partial": Variant("gptneox-dense", {"use_parallel_residual": True, "rope.dimension_count": 8}),
    "granite, scales": Variant(
        "granite-dense",
        {"embedding_scale": 12.0, "attention.scale": 0.015625, "residual_scale": 0.22, "logit_scale": 8.0},
    ),
    "granite, unrotated": Variant("granite-dense", {"rope.scaling.finetuned": False}),
    "granitemoe, rotated": Variant("granitemoe-moe", {"rope.scaling.finetuned": False}),
    "granitemoe, nothing shared": Variant(
        "granitemoe-moe",
        {"expert_shared_feed_forward_length": None},
        drop=tuple(f"blk.{i}.ffn_{x}_shexp" for i in range(2) for x in ("gate", "up", "down")),
    ),
    "granite_swa, patterns": Variant(
        "granite_swa-dense",
        {
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": [True, False, True],
            "attention.rope_pattern": [True, True, False],
        },
        layers=3,
    ),
    "granite_swa, experts": Variant(
        "granite_swa-dense",
        {"expert_count": 4, "expert_used_count": 2, "expert_shared_feed_forward_length": 16},
        drop=tuple(f"blk.{i}.ffn_{x}." for i in range(2) for x in ("gate", "up", "down")),
        add=per_layer(
            2,
            ("ffn_gate_inp.weight", [64, 4]),
            ("ffn_gate_up_exps.weight", [64, 192, 4]),
            ("ffn_down_exps.weight", [96, 64, 4]),
            ("ffn_up_shexp.weight", [64, 32]),
            ("ffn_down_shexp.weight", [16, 64]),
        ),
    ),
    "hrm_text, deeper stacks": Variant(
        "hrm_text-dense",
        {"embedding_scale": 3.0, "hrm.layers_per_stack": 2, "hrm.l_cycles": 1, "block_count": 8},
        layers=4,
    ),
    "hunyuan, alpha": Variant("hunyuan-dense-dense", {"rope.scaling.alpha": 1000.0, "rope.freq_base": 4.0}),
    "hunyuan_vl, a fourth section": Variant(
        "hunyuan_vl-dense",
        {"rope.dimension_sections": [4, 4, 4, 4], "rope.freq_base": 4.0, "rope.scaling.type": "none"}
        | {"rope.scaling.factor": 2.0},
    ),
    "hunyuan_vl, repeating sections": Variant(
        "hunyuan_vl-dense", {"rope.dimension_sections": [2, 2, 2, 2], "rope.freq_base": 4.0}
    ),
    "grok, yarn": Variant(
        "grok-moe",
        YARN
        | {"rope.scaling.yarn_ext_factor": 0.8, "rope.scaling.yarn_attn_factor": 1.3}
        | {"rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0},
    ),
    "jais, no bias by position": Variant("jais-dense", {"attention.max_alibi_bias": None}),
    "llama, linear": Variant("llama-dense", {"rope.scaling.factor": 4.0}),
    "llama, linear, its old key": Variant("llama-dense", {"rope.scale_linear": 4.0}),
    "llama, unscaled": Variant("llama-dense", {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}),
    "llama, yarn": Variant("llama-dense", YARN, drop=("rope_freqs",)),
    "llama, yarn and factors": Variant("llama-dense", YARN | {"rope.scaling.attn_factor": 1.1}),
    "llama, short": Variant("llama-dense", LONGROPE, drop=("rope_freqs",), add=LONG),
    "llama, long": Variant("llama-dense", LONGROPE, drop=("rope_freqs",), add=LONG, context=512),
    "minicpm, an older file": Variant("minicpm-dense", {"residual_scale": None}, layers=3),
    "minicpm, scales": Variant(
        "minicpm-moe", {"embedding_scale": 2.0, "residual_scale": 0.5, "logit_scale": 4.0}, drop=("rope_freqs",)
    ),
    "minicpm, long": Variant("minicpm-dense", LONGROPE, drop=("rope_freqs",), add=LONG, context=512),
    "minicpm3, partly rotated": Variant(
        "minicpm3-dense",
        {"rope.dimension_count": 16},
        add={"rope_factors_long.weight": [8], "rope_factors_short.weight": [8]}
        | per_layer(2, ("attn_kv_a_mqa.weight", [64, 528]), ("attn_kv_b.weight", [512, 96])),
        context=512,
    ),
    "mistral3, temperature": Variant(
        "mistral3-dense", {"attention.temperature_scale": 0.3, "rope.scaling.original_context_length": 8}
    ),
    "mistral3, yarn": Variant(
        "mistral3-dense", YARN | {"rope.scaling.yarn_log_multiplier": 0.5, "attention.temperature_scale": 0.1}
    ),
    "mistral3, yarn of its own speed": Variant(
        "mistral3-dense", YARN | {"rope.scaling.yarn_log_multiplier": 1.0, "rope.scaling.yarn_beta_fast": 16.0}
    ),
    "mpt, nothing but ALiBi": Variant(
        "mpt-dense",
        {"attention.clamp_kqv": None},
        drop=("position_embd", *(f"blk.{i}.{x}" for i in range(2) for x in ("ffn.act", "attn_k_norm"))),
    ),
    "mpt, learned positions": Variant(
        "mpt-dense", {"attention.max_alibi_bias": None}, add={"position_embd.weight": [64, 256]}
    ),
    "muse-glimmer, windows": Variant(
        "muse-glimmer-dense",
        {"attention.sliding_window_pattern": None, "attention.sliding_window": 8, "rope.freq_base_swa": 500.0}
        | {"attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16}
        | {"logit_scale": 2.5, "final_logit_softcapping": 5.0},
        layers=5,
    ),
    "nanbeige, loops": Variant("nanbeige-dense", {"num_loops": 2}),
    "nanbeige, loops without norms": Variant("nanbeige-dense", {"num_loops": 2, "skip_loop_final_norm": True}),
    "nemotron, partly rotated": Variant("nemotron-dense", {"rope.dimension_count": 16}),
    "olmo, unclamped": Variant("olmo-dense", {"attention.clamp_kqv": None}),
    "olmo2, windows": Variant(
        "olmo2-dense", YARN | {"attention.sliding_window_pattern": None, "attention.sliding_window": 8}, layers=5
    ),
    "olmo2, no windows": Variant("olmo2-dense", {"attention.sliding_window": None}),
    "openelm, layers of their own": Variant(
        "openelm-dense",
        {"attention.head_count": [2, 3], "attention.head_count_kv": [1, 1], "feed_forward_length": [96, 128]},
        add={
            "blk.0.attn_qkv.weight": [64, 128],
            "blk.1.attn_qkv.weight": [64, 160],
            "blk.1.attn_output.weight": [96, 64],
            "blk.1.ffn_gate.weight": [64, 128],
            "blk.1.ffn_up.weight": [64, 128],
            "blk.1.ffn_down.weight": [128, 64],
        },
    ),
    "paddleocr, a fourth section": Variant(
        "paddleocr-moe", {"rope.dimension_sections": [4, 4, 4, 4], "rope.freq_base": 4.0}
    ),
    "phi2, partly rotated": Variant("phi2-dense", {"rope.dimension_count": 8}),
    "phi3, short": Variant("phi3-dense", LONGROPE, add=LONG),
    "phi3, long": Variant("phi3-dense", LONGROPE, add=LONG, context=512),
    "plamo3, windows": Variant(
        "plamo3-dense",
        YARN
        | {"attention.sliding_window_pattern": None, "attention.sliding_window": 8, "rope.freq_base_swa": 500.0},
        layers=9,
    ),
    "plamo3, no windows": Variant("plamo3-dense", {"attention.sliding_window": None, "rope.freq_base": 500.0}),
    "qwen2vl": Variant("qwen2vl-dense", {"rope.dimension_sections": [4, 6, 6, 0], "rope.freq_base": 4.0}),
    "qwen3vl": Variant("qwen3vl-dense", {"rope.dimension_sections": [6, 5, 5, 0], "rope.freq_base": 4.0}),
    "qwen3vl, a pair left over": Variant(
        "qwen3vl-dense", {"rope.dimension_sections": [7, 4, 5, 0], "rope.freq_base": 4.0}
    ),
    "qwen3tts, codes after text": Variant(
        "qwen3tts-dense",
        {"vocab_size": 4000, "rope.dimension_sections": [6, 5, 5, 0]},
        add={"token_embd.weight": [64, 4000], "output.weight": [64, 3072]},
    ),
    "qwen3vl, a fourth section": Variant(
        "qwen3vl-dense", {"rope.dimension_sections": [4, 4, 4, 4], "rope.freq_base": 4.0, "n_deepstack_layers": 1}
    ),
    "refact, one key head": Variant(
        "refact-dense",
        {"attention.head_count_kv": 1},
        add=per_layer(2, *((f"attn_{x}.{y}", [64, 32][z:]) for x in "kv" for z, y in enumerate(("weight", "bias")))),
    ),
    "smollm3, deeper": Variant("smollm3-dense", layers=5),
    "spark2_5, local rotation": Variant(
        "spark2_5-dense", {"rope.dimension_count_swa": 16, "rope.freq_base_swa": 500.0, "attention.sliding_window": 8}
    ),
    "stablelm 2 12B": Variant(
        "stablelm-dense", {"rope.dimension_count": 8}, drop=tuple(f"blk.{i}.ffn_norm" for i in range(2))
    ),
    "starcoder, one key head": Variant(
        "starcoder-dense",
        {"attention.head_count_kv": 1},
        add={"position_embd.weight": [64, 256]}
        | per_layer(2, ("attn_qkv.weight", [64, 128]), ("attn_qkv.bias", [128])),
    ),
    "talkie, scaled logits": Variant("talkie-dense", {"logit_scale": 0.5}),
}  # fmt: skip


def narrow(name: str, shape: list[int]) -> list[int]:
    """A golden tensor's shape with everything but the vocabulary and the experts made smaller."""
    vocabulary = name.startswith(("token_embd.", "output."))
    return [n if vocabulary and n == 128 else NARROW.get(n, n) for n in shape]


def save(path: Path, variant: Variant) -> None:
    spec = SPECS[variant.name]
    values = {key: value for key, (_, value) in spec["metadata"].items()}
    changes = (
        (SIZES if variant.narrow else {})
        | ({"block_count": variant.layers} if variant.layers else {})
        | variant.metadata
    )
    values |= {f"{spec['arch']}.{key}": value for key, value in changes.items()}
    shapes = {name: narrow(name, shape) if variant.narrow else shape for name, shape in spec["tensors"]}
    if variant.layers:
        first = {name.removeprefix("blk.0."): s for name, s in shapes.items() if name.startswith("blk.0.")}
        shapes = {name: s for name, s in shapes.items() if not name.startswith("blk.")}
        shapes |= per_layer(variant.layers, *first.items())
    shapes = {name: s for name, s in shapes.items() if not name.startswith(variant.drop or "-")} | variant.add
    tensors = [
        (name, tuple(s[::-1]), tensor_type("F32"), arch_models.weight(name, s, 1).view(np.uint8))
        for name, s in shapes.items()
    ]
    write(path, {key: value for key, value in values.items() if value is not None}, tensors)


@pytest.mark.parametrize("label", VARIANTS)
def test_variant(label: str, tmp_path: Path) -> None:
    variant, path = VARIANTS[label], tmp_path / "variant.gguf"
    save(path, variant)
    with llamina.load(path, backend="reference", kv_type="f32", context=variant.context) as engine:
        got = engine.logits(TOKENS)[-1]
    want = last_logits(path, TOKENS, variant.context)
    said = np.isfinite(want)  # the others are never chosen
    assert np.array_equal(np.isfinite(got), said)
    got, want = got[said], want[said]
    tolerance = 1e-4 if variant.layers > 30 else 5e-6  # F16 keys and values, layer upon layer
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < tolerance
