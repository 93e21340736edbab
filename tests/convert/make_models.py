"""Make models.json and logits.npz: tiny models of `transformers`, and what it computes for them.

    python tests/convert/make_models.py [NAME ...]     # needs torch and transformers; not part of the tests

Weights are not stored: folders.py draws them by name and shape. A folder is written with them, loaded by
`transformers` as any other would be, and its logits (an encoder's last hidden state) are kept.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import convert_folders as folders
import numpy as np
import torch
import transformers as hf

VOCABULARY = 288
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 285,
    "eos_token_id": 286,
    "pad_token_id": 287,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 16,
}
BESIDE = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0 + 0.05 * i for i in range(8)],
    "long_factor": [2.0 + 0.5 * i for i in range(8)],
    "original_max_position_embeddings": 256,
}
KINDS = ["sliding_attention", "full_attention"]
GEMMA4 = {
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 8,
    "layer_types": KINDS,
    "vocab_size_per_layer_input": VOCABULARY,
}
OLD = {"vocab_size": VOCABULARY, "bos_token_id": 285, "eos_token_id": 286}
MODERN = {**SMALL, "num_key_value_heads": None, "num_hidden_layers": 3, "local_attention": 8}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {**SMALL, "rope_parameters": LLAMA3}),
    "llama-yarn": ("Llama", {**SMALL, "rope_parameters": {**YARN, "attention_factor": 1.3, "beta_fast": 16.0}}),
    "llama-linear": (
        "Llama",
        {**SMALL, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
    ),
    "llama-biases": ("Llama", {**SMALL, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama-bf16": ("Llama", {**SMALL, "head_dim": 32}),
    "mistral": ("Mistral", {**SMALL, "head_dim": 32, "sliding_window": None}),
    "mixtral": ("Mixtral", {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2", {**SMALL, "tie_word_embeddings": True}),
    "qwen2moe": ("Qwen2Moe", {**SMALL, **EXPERTS, "num_experts": 4, "shared_expert_intermediate_size": 64}),
    "qwen3": ("Qwen3", {**SMALL, "head_dim": 32}),
    "qwen3moe": ("Qwen3Moe", {**SMALL, **EXPERTS, "head_dim": 32, "num_experts": 4, "norm_topk_prob": True}),
    "gemma": ("Gemma", {**SMALL, "head_dim": 32, "num_key_value_heads": 1}),
    "gemma2": ("Gemma2", {**SMALL, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8}),
    "gemma3": (
        "Gemma3Text",
        {**SMALL, "num_hidden_layers": 7, "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8},
    ),
    "gemma3n": (
        "Gemma3nText",
        {
            **SMALL,
            "head_dim": 16,
            "sliding_window": 8,
            "num_hidden_layers": 4,
            "layer_types": KINDS * 2,
            "num_kv_shared_layers": 2,
            "activation_sparsity_pattern": [0.9, 0.0, 0.9, 0.0],
            "intermediate_size": [256] * 4,
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": VOCABULARY - 8,
            "pad_token_id": 0,
        },
    ),
    "gemma4": (
        "Gemma4Text",
        {
            **SMALL,
            **GEMMA4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
        },
    ),
    "gemma4-moe": (
        "Gemma4Text",
        {
            **SMALL,
            **GEMMA4,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma4-shared": (
        "Gemma4Text",
        {
            **SMALL,
            **GEMMA4,
            "num_hidden_layers": 5,
            "layer_types": ["sliding_attention", *KINDS, *KINDS],
            "hidden_size_per_layer_input": 32,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
        },
    ),
    "gemma-embedding": (
        "Gemma3Text",
        {
            **SMALL,
            "num_hidden_layers": 7,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": 8,
            "use_bidirectional_attention": True,
        },
    ),
    "apertus": ("Apertus", {**SMALL, "rope_parameters": LLAMA3}),
    "phi3": ("Phi3", {**SMALL, "sliding_window": None}),
    "phi3-longrope": (
        "Phi3",
        {**SMALL, "sliding_window": None, "rope_parameters": LONGROPE, "original_max_position_embeddings": 256},
    ),
    "command-r": ("Cohere", SMALL),
    "command-r-plus": ("Cohere", {**SMALL, "use_qk_norm": True}),
    "cohere2": ("Cohere2", {**SMALL, "num_hidden_layers": 4, "sliding_window": 8}),
    "falcon": ("Falcon", {**SMALL, "num_key_value_heads": None}),
    "falcon-new": ("Falcon", {**SMALL, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "gpt2": ("GPT2", {**OLD, "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}),
    "gptneox": ("GPTNeoX", {**SMALL, "num_key_value_heads": None}),
    "gptneox-serial": ("GPTNeoX", {**SMALL, "num_key_value_heads": None, "use_parallel_residual": False}),
    "bloom": ("Bloom", {**OLD, "hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "stablelm": ("StableLm", {**SMALL, "use_qkv_bias": True}),
    "stablelm-parallel": ("StableLm", {**SMALL, "use_parallel_residual": True, "qk_layernorm": True}),
    "olmo2": ("Olmo2", SMALL),
    "olmo3": ("Olmo3", {**SMALL, "num_hidden_layers": 4, "sliding_window": 8}),
    "starcoder2": ("Starcoder2", SMALL),
    "deepseek2": ("DeepseekV2", {**SMALL, **LATENT, **EXPERTS, "routed_scaling_factor": 1.5}),
    "deepseek3": ("DeepseekV3", {**SMALL, **LATENT, **EXPERTS, "n_group": 4, "topk_group": 2}),
    "deepseek3-yarn": (
        "DeepseekV3",
        {
            **SMALL,
            **LATENT,
            **EXPERTS,
            "n_group": 1,
            "topk_group": 1,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "mamba2": (
        "Mamba2",
        {
            **OLD,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "head_dim": 16,
            "num_heads": 8,
            "state_size": 16,
            "n_groups": 1,
        },
    ),
    "granite": (
        "Granite",
        {
            **SMALL,
            "embedding_multiplier": 12.0,
            "logits_scaling": 4.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.1,
        },
    ),
    "granitemoe": (
        "GraniteMoe",
        {
            **SMALL,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.1,
        },
    ),
    "granitemoe-shared": (
        "GraniteMoeShared",
        {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64},
    ),
    "smollm3": ("SmolLM3", {**SMALL, "num_hidden_layers": 4}),
    "arcee": ("Arcee", SMALL),
    "seed_oss": ("SeedOss", {**SMALL, "head_dim": 32}),
    "exaone4": ("Exaone4", {**SMALL, "sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "glm4": ("Glm4", {**SMALL, "head_dim": 32}),
    "glm4moe": ("Glm4Moe", {**SMALL, **EXPERTS, **BESIDE, "head_dim": 32, "use_qk_norm": True}),
    "nemotron": ("Nemotron", {**SMALL, "head_dim": 16}),
    "phi2": ("Phi", {**SMALL, "num_key_value_heads": None}),
    "olmo": ("Olmo", {**SMALL, "clip_qkv": 2.0}),
    "olmoe": ("Olmoe", {**SMALL, "num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2}),
    "ernie4_5": ("Ernie4_5", {**SMALL, "head_dim": 32}),
    "hunyuan-dense": ("HunYuanDenseV1", {**SMALL, "head_dim": 16}),
    "dots1": (
        "Dots1",
        {**SMALL, **EXPERTS, **BESIDE, "num_key_value_heads": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.0},
    ),
    "gpt-oss": (
        "GptOss",
        {**SMALL, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
    ),
    "llama4": (
        "Llama4Text",
        {
            **SMALL,
            "num_hidden_layers": 4,
            "head_dim": 16,
            "intermediate_size_mlp": 80,
            "num_local_experts": 4,
            "interleave_moe_layer_step": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
        },
    ),
    "lfm2": ("Lfm2", {**SMALL, "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}),
    "starcoder": ("GPTBigCode", {**OLD, "n_positions": 512, "n_embd": 64, "n_layer": 2, "n_head": 4}),
    "mamba": ("Mamba", {**OLD, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16}),
    "falcon-mamba": ("FalconMamba", {**OLD, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16}),
    "bert": ("Bert", {**SMALL, "num_key_value_heads": None}),
    "eurobert": ("EuroBert", SMALL),
    "modern-bert": ("ModernBert", {**MODERN, "hidden_activation": "silu"}),
    "modern-bert-ranker": ("ModernBert", {**MODERN, "classifier_pooling": "mean", "num_labels": 2}),
    "roberta": ("Roberta", {**SMALL, "num_key_value_heads": None, "max_position_embeddings": 513, "pad_token_id": 0}),
}
ENCODERS = {"bert": "wordpiece"} | dict.fromkeys(("roberta", "eurobert", "modern-bert", "gemma-embedding"), "bpe")
RANKERS = {"modern-bert-ranker"}
BF16 = {"llama-bf16"}


def main() -> None:
    chosen = sys.argv[1:] or list(MODELS)
    folders.MODELS = {name: spec for name, spec in folders.MODELS.items() if name in MODELS}
    path = folders.HERE / "logits.npz"
    truth = dict(np.load(path)) if path.exists() else {}
    for name in chosen:
        folders.MODELS[name] = describe(name)
        truth[name] = compute(name)
        print(f"{name:20} {truth[name].std():8.3f}  {int(truth[name][-1].argmax()):4}")
    (folders.HERE / "models.json").write_text(json.dumps(folders.MODELS, indent=1, sort_keys=True) + "\n")
    np.savez_compressed(path, **{name: truth[name] for name in sorted(folders.MODELS)})


def describe(name: str) -> dict[str, Any]:
    """A model's config.json and its tensors, as `transformers` saves them."""
    family, given = MODELS[name]
    config = getattr(hf, f"{family}Config")(
        **{key: value for key, value in given.items() if key != "num_key_value_heads" or value}
    )
    loader = loader_of(name)
    with tempfile.TemporaryDirectory() as folder:
        loader.from_config(config).save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        data = (Path(folder) / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    tensors = {key: header[key]["shape"] for key in sorted(header) if key != "__metadata__"}
    dtype = "BF16" if name in BF16 else "F32"
    return {"config": saved, "tensors": tensors, "dtype": dtype, "tokenizer": ENCODERS.get(name, "bpe")}


def loader_of(name: str) -> Any:
    if name in RANKERS:
        return hf.AutoModelForSequenceClassification
    return hf.AutoModel if name in ENCODERS else hf.AutoModelForCausalLM


def compute(name: str) -> Any:
    """What the model says to the tokens."""
    with tempfile.TemporaryDirectory() as top:
        folder = folders.folder(Path(top) / name, name)
        model = loader_of(name).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            result = model(torch.tensor([folders.TOKENS]))
    output = result.last_hidden_state if name in ENCODERS else result.logits
    return output[0].numpy()


if __name__ == "__main__":
    main()
