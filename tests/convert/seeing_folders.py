"""Hugging Face folders of models that see: stored settings, weights from a fixed generator, and tiles to show them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from convert_folders import HERE, TOKENIZERS, save, values

SPECS = HERE / "encoders.json"
FACTS = HERE / "encoders.npz"
MODELS: dict[str, Any] = json.loads(SPECS.read_text()) if SPECS.exists() else {}
SIDE = 56
ANY_SIZE = {"qwen2vl", "qwen25vl", "qwen3vl", "qwen3vlmoe", "qwen25omni", "pixtral", "mistral3", "lfm2vl", "glm4v"}
HEARING = {"qwen2audio", "voxtral"}  # and do not see
MELS, FRAMES, EVERY = 128, 3000, 25  # of what they hear, and of which rows facts are
BREAK = 12  # the token [IMG_BREAK]


def tiles(name: str) -> list[npt.NDArray[Any]]:
    """What a model is shown: squares, or what is wide and what is tall, waves with noise; or the spectrogram of one."""
    rng = np.random.default_rng(7)
    found: list[npt.NDArray[Any]] = []
    if name in HEARING or name == "qwen25omni":
        y, x = np.mgrid[0:FRAMES, 0:MELS]
        found.append((np.sin(y / 40 + x / 9) + 0.3 * rng.standard_normal((FRAMES, MELS))).astype(np.float32))
    if name in HEARING:
        return found
    for width, height in ((140, 84), (56, 112)) if name in ANY_SIZE else ((SIDE, SIDE), (SIDE, SIDE)):
        y, x = np.mgrid[0:height, 0:width]
        waves = np.stack([np.sin(x / 9 + k) + np.cos(y / (7 + k)) for k in range(3)], -1)
        noisy = 128 + 50 * waves + 20 * rng.standard_normal((height, width, 3))
        found.append(np.clip(noisy, 0, 255).astype(np.uint8))
    return found


def folder(path: Path, name: str) -> Path:
    """A model of encoders.json as transformers would save it, with tensors of the text model left out."""
    spec = MODELS[name]
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(spec["config"]))
    (path / "preprocessor_config.json").write_text(json.dumps(spec["processor"]))
    (path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": BREAK, "content": "[IMG_BREAK]"}]}))
    tensors = {key: ("F32", values(key, shape, "soft_emb" in key)) for key, shape in spec["tensors"].items()}
    save(path / "model.safetensors", tensors)
    return path


_CHAT = {
    "vision_tower.embeddings.cls_token": "vision_model.embeddings.class_embedding",
    "vision_tower.embeddings.position_embeddings": "vision_model.embeddings.position_embedding",
    "vision_tower.embeddings.patch_embeddings.projection": "vision_model.embeddings.patch_embedding",
    "vision_tower.encoder.layer.": "vision_model.encoder.layers.",
    ".attention.projection_layer": ".attn.proj",
    ".layernorm_before": ".norm1",
    ".layernorm_after": ".norm2",
    ".lambda_1": ".ls1",
    ".lambda_2": ".ls2",
    "multi_modal_projector.layer_norm": "mlp1.0",
    "multi_modal_projector.linear_1": "mlp1.1",
    "multi_modal_projector.linear_2": "mlp1.3",
}


def chat_folder(path: Path, name: str) -> Path:
    """An InternVL of encoders.json as its authors publish theirs: names of their own, q, k and v as one matrix."""
    made = folder(path, name)
    config = dict(MODELS[name]["config"])
    text, vision = config.pop("text_config"), config["vision_config"] | {"image_size": SIDE, "patch_size": 14}
    config |= {"architectures": ["InternVLChatModel"], "llm_config": text, "vision_config": vision}
    (path / "config.json").write_text(json.dumps(config))
    tensors, fused = {}, {}
    for key, shape in MODELS[name]["tensors"].items():
        x, other = values(key, shape), key
        for theirs, ours in _CHAT.items():
            other = other.replace(theirs, ours)
        match other.split(".attention."):
            case [layer, rest]:
                fused.setdefault(f"{layer}.attn.qkv.{rest.split('.')[-1]}", {})[rest[0]] = x
            case _:
                tensors[other] = x
    tensors |= {key: np.concatenate([parts[name] for name in "qkv"]) for key, parts in fused.items()}
    save(path / "model.safetensors", {key: ("F32", x) for key, x in tensors.items()})
    return made


def whole_folder(path: Path, name: str, prefix: str, head: str, columns: bool = False) -> Path:
    """The same with its text model, whose tensors begin with `prefix`, and a tokenizer; experts may be transposed."""
    made = folder(path, name)
    shutil.copytree(TOKENIZERS / "bpe", path, dirs_exist_ok=True)
    config, text = dict(MODELS[name]["config"]), text_settings(name)
    config.pop("tie_word_embeddings", None)
    (path / "config.json").write_text(json.dumps(config | {"text_config": text}))
    seeing = {key: shape for key, shape in MODELS[name]["tensors"].items() if "embed_tokens" not in key}
    tensors = {key: values(key, shape, "soft_emb" in key) for key, shape in seeing.items()}
    tensors |= {
        head if key == "lm_head.weight" else prefix + key.removeprefix("model."): x
        for key, x in text_tensors(text).items()
    }
    if columns:
        tensors |= {key: np.ascontiguousarray(x.swapaxes(1, 2)) for key, x in tensors.items() if ".mlp.experts." in key}
    save(path / "model.safetensors", {key: ("F32", x) for key, x in tensors.items()})
    return made


def text_folder(path: Path, name: str, architecture: str) -> Path:
    """The text model alone, as a model of its own class."""
    shutil.copytree(TOKENIZERS / "bpe", path)
    text = text_settings(name)
    (path / "config.json").write_text(json.dumps(text | {"architectures": [architecture]}))
    save(path / "model.safetensors", {key: ("F32", x) for key, x in text_tensors(text).items()})
    return path


def text_settings(name: str) -> dict[str, Any]:
    """text_config with the vocabulary of the tokenizer, and a scale of queries that GGUF can express."""
    text = dict(MODELS[name]["config"]["text_config"]) | {"vocab_size": 288}
    return text | {"query_pre_attn_scalar": text["head_dim"]} if "query_pre_attn_scalar" in text else text


def text_tensors(text: dict[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
    """The weights of a text model under the names of its own class."""
    width, inner, kind = text["hidden_size"], text["intermediate_size"], text["model_type"]
    dim = text.get("head_dim") or width // text["num_attention_heads"]
    queries, keys = text["num_attention_heads"] * dim, text["num_key_value_heads"] * dim
    if kind == "lfm2":
        return _lfm2(text, dim)
    layer = {
        "input_layernorm": [width],
        "post_attention_layernorm": [width],
        "self_attn.q_proj": [queries, width],
        "self_attn.k_proj": [keys, width],
        "self_attn.v_proj": [keys, width],
        "self_attn.o_proj": [width, queries],
        "mlp.gate_proj": [inner, width],
        "mlp.up_proj": [inner, width],
        "mlp.down_proj": [width, inner],
    }
    if kind.startswith("gemma"):
        layer |= {f"{name}_feedforward_layernorm": [width] for name in ("pre", "post")}
    if kind.startswith("glm"):
        layer |= {f"post_{name}_layernorm": [width] for name in ("self_attn", "mlp")}
        layer |= {"mlp.gate_up_proj": [layer.pop("mlp.gate_proj")[0] + layer.pop("mlp.up_proj")[0], width]}
    if experts := text.get("num_local_experts", text.get("num_experts")):
        layer = {name: shape for name, shape in layer.items() if not name.startswith("mlp.")}
        layer |= {"feed_forward.router" if kind == "llama4_text" else "mlp.gate": [experts, width]}
    if kind.startswith(("gemma", "qwen3")):
        layer |= {f"self_attn.{name}_norm": [dim] for name in "qk"}
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    if kind.startswith(("qwen2", "glm")):
        biases = {"q": queries, "k": keys, "v": keys}
        shapes |= {f"model.layers.0.self_attn.{name}_proj.bias": [n] for name, n in biases.items()}
    if experts and kind == "llama4_text":  # stored column by column
        fused = {"gate_up_proj": [experts, width, 2 * inner], "down_proj": [experts, inner, width]}
        shapes |= {f"model.layers.0.feed_forward.experts.{name}": shape for name, shape in fused.items()}
        shared = {"gate": [inner, width], "up": [inner, width], "down": [width, inner]}
        root = "model.layers.0.feed_forward.shared_expert"
        shapes |= {f"{root}.{name}_proj.weight": shape for name, shape in shared.items()}
    elif experts:
        inner = text["moe_intermediate_size"]
        fused = {"gate_up_proj": [experts, 2 * inner, width], "down_proj": [experts, width, inner]}
        shapes |= {f"model.layers.0.mlp.experts.{name}": shape for name, shape in fused.items()}
    shapes |= {"model.embed_tokens.weight": [text["vocab_size"], width], "model.norm.weight": [width]}
    if not text.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = [text["vocab_size"], width]
    return {name: values(name, shape, kind.startswith("gemma")) for name, shape in shapes.items()}


def _lfm2(text: dict[str, Any], dim: int) -> dict[str, npt.NDArray[np.float32]]:
    """One layer with attention."""
    width, inner, keys = text["hidden_size"], text["intermediate_size"], text["num_key_value_heads"] * dim
    layer = {f"{name}_norm": [width] for name in ("operator", "ffn")}
    layer |= {
        f"self_attn.{name}_proj": [width if name in ("q", "out") else keys, width] for name in ("q", "k", "v", "out")
    }
    layer |= {f"self_attn.{name}_layernorm": [dim] for name in "qk"}
    layer |= {"feed_forward.w1": [inner, width], "feed_forward.w2": [width, inner], "feed_forward.w3": [inner, width]}
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": [text["vocab_size"], width], "model.embedding_norm.weight": [width]}
    return {name: values(name, shape) for name, shape in shapes.items()}
