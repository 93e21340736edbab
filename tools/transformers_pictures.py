"""Make facts of `transformers`: what tiny models make of tiles and spectrograms, and what pictures are cut into.

    python tools/transformers_pictures.py [NAME ...]     # needs torch and transformers; not part of the tests

The models are in tests/convert/encoders.json, rows in encoders.npz. Weights are not stored: seeing_folders.py draws
them by name and shape. A folder is written with them, loaded by `transformers` as any other would be, and the rows that
take the place of a tile in the prompt are kept (every 25th, of a sound). Tiles are those of the processors that agree
with llama.cpp (tests/golden/vision_processors.npz): every other pixel of every other line of the golden pictures.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "convert"))

import seeing_folders as folders

from golden import vision_models

KEPT = re.compile(r"vision|visual|projector|connector|embed_tokens|image_newline|audio_tower|\.aligner")
TEXT = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
VIT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": folders.SIDE,
    "patch_size": 14,
}
SECTIONS = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
QWEN = {"num_heads": 4, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
QWEN2 = {"depth": 3, "embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2, **QWEN}
QWEN25 = {
    "depth": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "out_hidden_size": 64,
    "fullatt_block_indexes": [1, 3],
}
QWEN3 = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [1],
}
PIXTRAL = {**VIT, "image_size": 224, "hidden_act": "silu", "head_dim": 8}
INTERN = {**VIT, "image_size": [56, 56], "patch_size": [14, 14], "attention_bias": True}
SIGLIP2 = {key: value for key, value in VIT.items() if key != "image_size"} | {"num_patches": 16}
JANUS = {key: value for key, value in VIT.items() if key != "intermediate_size"} | {"mlp_ratio": 1.5}
GLM = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 96,
    "out_hidden_size": 64,
    "image_size": folders.SIDE,
    "attention_bias": False,
}
HALF = {**SECTIONS, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}
WHISPER = {
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "num_mel_bins": folders.MELS,
}
PROCESSOR = {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}
Model = Any


def llama() -> Any:
    return hf.LlamaConfig(**TEXT)


MODELS: dict[str, Callable[[], Any]] = {
    "llava": lambda: hf.LlavaConfig(vision_config=hf.CLIPVisionConfig(**VIT), text_config=llama()),
    "llava_next": lambda: hf.LlavaNextConfig(
        vision_config=hf.CLIPVisionConfig(**VIT),
        text_config=llama(),
        image_grid_pinpoints=[[56, 112], [112, 56], [112, 112]],
    ),
    "qwen2vl": lambda: hf.Qwen2VLConfig(text_config={**TEXT, "rope_parameters": SECTIONS}, vision_config=QWEN2),
    "qwen25vl": lambda: hf.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": SECTIONS}, vision_config={**QWEN25, **QWEN}
    ),
    "qwen3vl": lambda: hf.Qwen3VLConfig(
        text_config={
            **TEXT,
            "head_dim": 16,
            "rope_parameters": SECTIONS | {"mrope_interleaved": True, "mrope_section": [3, 3, 2]},
        },
        vision_config={**QWEN3, **QWEN},
    ),
    "qwen3vlmoe": lambda: hf.Qwen3VLMoeConfig(
        text_config={
            **TEXT,
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "rope_parameters": SECTIONS | {"mrope_interleaved": True, "mrope_section": [3, 3, 2]},
        },
        vision_config={**QWEN3, **QWEN},
    ),
    "qwen25omni": lambda: hf.Qwen2_5OmniThinkerConfig(
        text_config={**TEXT, "rope_parameters": SECTIONS},
        vision_config={**QWEN25, **QWEN},
        audio_config={**WHISPER, "n_window": folders.FRAMES // 2, "output_dim": 64},
    ),
    "gemma3": lambda: hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(**TEXT, head_dim=16),
        vision_config=hf.SiglipVisionConfig(**VIT, vision_use_head=False),
        mm_tokens_per_image=4,
    ),
    "idefics3": lambda: hf.Idefics3Config(vision_config=VIT, text_config=llama(), scale_factor=2),
    "pixtral": lambda: hf.LlavaConfig(
        vision_config=hf.PixtralVisionConfig(**PIXTRAL),
        text_config=llama(),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    ),
    "mistral3": lambda: hf.Mistral3Config(
        vision_config=hf.PixtralVisionConfig(**PIXTRAL), text_config=hf.MistralConfig(**TEXT), spatial_merge_size=2
    ),
    "internvl": lambda: hf.InternVLConfig(
        vision_config=hf.InternVLVisionConfig(**INTERN), text_config=hf.Qwen2Config(**TEXT), tie_word_embeddings=False
    ),
    "lfm2vl": lambda: hf.Lfm2VlConfig(
        vision_config=hf.Siglip2VisionConfig(**SIGLIP2, vision_use_head=False),
        text_config=hf.Lfm2Config(**TEXT, layer_types=["full_attention"], block_auto_adjust_ff_dim=False),
        projector_hidden_size=80,
    ),
    "llama4": lambda: hf.Llama4Config(
        vision_config=hf.Llama4VisionConfig(
            **{**VIT, "intermediate_size": 128}, projector_input_dim=40, projector_output_dim=40, vision_output_dim=40
        ),
        text_config=hf.Llama4TextConfig(**TEXT, head_dim=16, intermediate_size_mlp=80, num_local_experts=4),
    ),
    "janus": lambda: hf.JanusConfig(
        vision_config=hf.JanusVisionConfig(**JANUS, projection_dim=64),
        text_config=llama(),
        vq_config={"base_channels": 32, "num_embeddings": 16, "channel_multiplier": [1], "num_res_blocks": 1},
    ),
    "glm4v": lambda: hf.Glm4vConfig(
        vision_config={**GLM, **QWEN}, text_config={**TEXT, "rope_parameters": HALF}, tie_word_embeddings=False
    ),
    "qwen2audio": lambda: hf.Qwen2AudioConfig(
        audio_config=hf.Qwen2AudioEncoderConfig(**WHISPER), text_config=hf.Qwen2Config(**TEXT)
    ),
    "voxtral": lambda: hf.VoxtralConfig(
        audio_config=hf.VoxtralEncoderConfig(**WHISPER), text_config=llama(), projector_hidden_act="gelu"
    ),
}


def main() -> None:
    specs = dict(folders.MODELS)
    facts = dict(np.load(folders.FACTS)) if folders.FACTS.exists() else {}
    for name in sys.argv[1:] or MODELS:
        specs[name] = folders.MODELS[name] = describe(name)
        for k, rows in enumerate(compute(name)):
            facts[f"{name}.{k}"] = rows
            print(f"{name:12} {rows.shape} {np.abs(rows).mean():.3f}")
    np.savez_compressed(Path(vision_models.__file__).parent / "vision_processors.npz", **processed())
    folders.SPECS.write_text(json.dumps(specs, indent=1, sort_keys=True) + "\n")
    np.savez_compressed(folders.FACTS, **facts)


def processed() -> dict[str, Any]:
    """Tiles in units of 255, in the order of the processors."""
    colours = {"image_mean": vision_models.MEAN, "image_std": vision_models.DEVIATION}
    side = {"height": folders.SIDE, "width": folders.SIDE}
    grids = [[112, 56], [56, 112], [112, 112], [56, 168]]  # height and width
    processors = {
        "llava16": hf.LlavaNextImageProcessorPil(
            size={"shortest_edge": folders.SIDE}, crop_size=side, image_grid_pinpoints=grids, **colours
        ),
        "idefics3": hf.Idefics3ImageProcessorPil(
            size={"longest_edge": 2 * folders.SIDE}, max_image_size={"longest_edge": folders.SIDE}, **colours
        ),
    }
    found = {}
    for name, processor in processors.items():
        for k, pixels in enumerate(vision_models.pictures()):
            values = np.array(processor(images=Image.fromarray(pixels), return_tensors="np")["pixel_values"])
            tiles = values.reshape(-1, *values.shape[-3:]).transpose(0, 2, 3, 1)[:, ::2, ::2]
            units = (tiles * np.float32(vision_models.DEVIATION) + np.float32(vision_models.MEAN)) * 255
            found[f"{name}.{k}"] = np.round(units).astype(np.uint8)
    return found


def kind(name: str) -> Any:
    """The class of a model."""
    heard = {
        "qwen2audio": hf.Qwen2AudioForConditionalGeneration,
        "qwen25omni": hf.Qwen2_5OmniThinkerForConditionalGeneration,
        "voxtral": hf.VoxtralForConditionalGeneration,
    }
    if name in heard:
        return heard[name]
    return hf.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(MODELS[name]())]


def describe(name: str) -> dict[str, Any]:
    """A model's settings, and the tensors of its encoder as `transformers` saves them."""
    config = MODELS[name]()
    model = kind(name)._from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        data = (Path(folder) / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    tensors = {key: header[key]["shape"] for key in sorted(header) if KEPT.search(key)}
    longest = {"size": {"longest_edge": 2 * folders.SIDE}} if name == "idefics3" else {}
    return {"config": saved, "processor": PROCESSOR | longest, "tensors": tensors}


def compute(name: str) -> list[Any]:
    """The rows of each tile."""
    with tempfile.TemporaryDirectory() as top:
        folder = folders.folder(Path(top) / name, name)
        model = kind(name).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        return [rows_of(name, getattr(model, "model", model), tile).numpy() for tile in folders.tiles(name)]


def rows_of(name: str, model: Model, tile: Any) -> Any:
    if tile.dtype == np.float32 and name == "qwen25omni":
        length = torch.tensor([len(tile)])
        return model.audio_tower(torch.tensor(tile.T), feature_lens=length).last_hidden_state[:: folders.EVERY]
    if tile.dtype == np.float32:
        heard = model.audio_tower(torch.tensor(tile.T[None])).last_hidden_state
        stacked = 4 if name == "voxtral" else 1
        return model.multi_modal_projector(heard.reshape(-1, stacked * heard.shape[-1]))[:: folders.EVERY]
    pixels = (tile.astype(np.float32) / 255 - np.float32(PROCESSOR["image_mean"])) / np.float32(PROCESSOR["image_std"])
    planes = torch.tensor(pixels).permute(2, 0, 1)[None]
    if name.startswith("llava"):
        seen = model.vision_tower(planes, output_hidden_states=True).hidden_states[-2][:, 1:]
        return model.multi_modal_projector(seen)[0]
    if name.startswith("qwen") or name == "glm4v":
        return film(model, planes[0])
    if name == "llama4":  # rows of a tile go down its columns, as in llama.cpp
        seen = model.multi_modal_projector(model.vision_model(planes).last_hidden_state)
        return seen.reshape(2, 2, -1).transpose(0, 1).reshape(4, -1)
    if name == "lfm2vl":
        return patched(model, tile, pixels)
    if name in ("gemma3", "internvl", "janus"):
        return model.get_image_features(planes).pooler_output[0]
    if name == "idefics3":
        return model.get_image_features(planes[None]).pooler_output[0]
    size = torch.tensor([tile.shape[:2]])
    seen = model.vision_tower(planes, image_sizes=size.tolist(), output_hidden_states=True).hidden_states[-1]
    if name == "mistral3":
        return broken(model, model.multi_modal_projector(seen[0], size), tile, 28)
    return broken(model, model.multi_modal_projector(seen)[0], tile, 14)


def patched(model: Model, tile: Any, pixels: Any) -> Any:
    """Patches with their colours side by side."""
    lines, columns = (n // 14 for n in tile.shape[:2])
    rows = pixels.reshape(lines, 14, columns, 14, 3).transpose(0, 2, 1, 3, 4).reshape(1, lines * columns, -1)
    mask = torch.ones(rows.shape[:2], dtype=torch.int64)
    return model.get_image_features(torch.tensor(rows), torch.tensor([[lines, columns]]), mask).pooler_output[0]


def film(model: Model, planes: Any) -> Any:
    """Two frames of patches, those together that are merged."""
    lines, columns = planes.shape[1] // 14, planes.shape[2] // 14
    parts = planes.reshape(3, lines // 2, 2, 14, columns // 2, 2, 14).permute(1, 4, 2, 5, 0, 3, 6)
    patches = parts.reshape(lines * columns, 3, 1, 14, 14).repeat(1, 1, 2, 1, 1).reshape(lines * columns, -1)
    out = model.visual(patches, grid_thw=torch.tensor([[1, lines, columns]]))
    return torch.cat([out.pooler_output, *getattr(out, "deepstack_features", ())], 1)


def broken(model: Model, rows: Any, tile: Any, step: int) -> Any:
    """With the embedding of a break between lines."""
    lines = rows.reshape(tile.shape[0] // step, -1, rows.shape[-1])
    ending = model.language_model.embed_tokens.weight[folders.BREAK].expand(len(lines), 1, -1)
    return torch.cat([lines, ending], 1).reshape(-1, rows.shape[-1])[:-1]


if __name__ == "__main__":
    main()
