"""Files that fit the format but not their architecture are refused before a kernel could read past a tensor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from golden_facts import SPECS
from llamina.errors import LlaminaError
from llamina.gguf import tensor_type, write


def save(path: Path, name: str, metadata: dict[str, Any], shapes: dict[str, list[int]]) -> Path:
    """A golden model with some of its metadata and shapes (rows first) replaced; all weights are zero."""
    spec = SPECS[name]
    values = {key: value for key, (_, value) in spec["metadata"].items()}
    values |= {f"{spec['arch']}.{key}": value for key, value in metadata.items()}
    tensors = [
        (n, tuple(s), tensor_type("F32"), np.zeros(s, np.float32).view(np.uint8))
        for n, s in ((n, shapes.get(n, shape[::-1])) for n, shape in spec["tensors"])
    ]
    write(path, values, tensors)
    return path


@pytest.mark.parametrize(
    ("name", "metadata", "shapes"),
    [
        ("llama-moe", {"expert_used_count": 9}, {}),
        ("llama-moe", {"expert_used_count": 0}, {}),
        ("deepseek2-moe", {"expert_group_count": 3, "expert_group_used_count": 1}, {}),
        ("deepseek2-moe", {"expert_group_count": 8, "expert_group_used_count": 1}, {}),
        ("deepseek2-moe", {}, {"blk.1.exp_probs_b.bias": [7]}),
        ("gpt2-dense", {"context_length": 512}, {}),
        ("gpt2-dense", {}, {"blk.0.attn_norm.bias": [255]}),
        ("llama-dense", {}, {"token_embd.weight": [64, 256]}),
        ("llama-dense", {}, {"rope_freqs.weight": [63]}),
        ("llama-dense", {"rope.scaling.type": "spiral"}, {}),
        ("llama-dense", {"rope.scaling.type": "yarn", "rope.scaling.yarn_beta_fast": 0.0}, {}),
        ("glm4-dense", {"rope.dimension_sections": [8, 8, 8]}, {}),
        ("glm4-dense", {"nextn_predict_layers": 3}, {}),
        ("gemma3-dense", {"attention.sliding_window_pattern": [True]}, {}),
        ("gemma3n-dense", {"activation_sparsity_scale": 1.6}, {}),
        ("gemma4-shared", {"attention.shared_kv_layers": 5}, {}),
        ("gemma4-shared", {"attention.shared_kv_layers": 6}, {}),
        ("gemma4-shared", {}, {"per_layer_token_embd.weight": [127, 192]}),
        ("gemma4-shared", {}, {"per_layer_token_embd.weight": [128, 193]}),
        ("hrm_text-dense", {"block_count": 5}, {}),
        ("mpt-dense", {"context_length": 512}, {}),
        ("nanbeige-dense", {"num_loops": 0}, {}),
        ("qwen3-dense", {}, {"output.weight": [100, 256]}),
        ("qwen3tts-dense", {}, {"output.weight": [3073, 256]}),
        ("mamba2-dense", {}, {"blk.0.ssm_conv1d.weight": [1024, 1]}),
        ("mamba2-dense", {}, {"blk.0.ssm_conv1d.bias": [1023]}),
        ("jamba-dense", {}, {"blk.1.ssm_a": [512, 64]}),
        ("mamba2-dense", {"ssm.group_count": 3}, {}),
        ("qwen35-dense", {}, {"blk.0.ssm_a": [3]}),
        ("qwen35-dense", {}, {"blk.0.ssm_beta.weight": [3, 256]}),
        ("qwen35-dense", {"ssm.group_count": 1}, {}),
        ("kimi-linear-moe", {}, {"blk.1.ssm_conv1d_q.weight": [128, 1, 1]}),
        ("kimi-linear-moe", {"kda.head_dim": 64}, {}),
        ("minimax-01-moe", {}, {"blk.0.attn_qkv.weight": [512, 256]}),
        ("lfm2-dense", {"attention.causal": False}, {}),
    ],
)
def test_refused(tmp_path: Path, name: str, metadata: dict[str, Any], shapes: dict[str, list[int]]) -> None:
    with pytest.raises(LlaminaError):
        llamina.load(save(tmp_path / "bad.gguf", name, metadata, shapes), backend="reference")


def test_learned_positions_bound_the_context(tmp_path: Path) -> None:
    path = save(tmp_path / "gpt2.gguf", "gpt2-dense", {}, {})
    llamina.load(path, backend="reference", context=256).close()
    with pytest.raises(LlaminaError, match="learned 256 positions, and the context is 512"):
        llamina.load(path, backend="reference", context=512)
