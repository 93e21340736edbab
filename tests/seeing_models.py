"""Tiny models that see and hear: mmproj files of each family, and text models with a vocabulary to speak of it."""

from pathlib import Path

import numpy as np

from golden import sound_models, vision_models
from llamina.gguf import Kind, ValueType, open_model, write

SPECIAL = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<start_of_image>",
    "<end_of_image>",
    "<img>",
    "</img>",
    "<image>",
    "</image>",
    "<slice>",
    "</slice>",
    "<|image_start|>",
    "<|image_end|>",
    "[IMG_END]",
    "\n",
    "\n\n",
    "<fake_token_around_image>",
    "<global-img>",
    *(f"<row_{y}_col_{x}>" for y in (1, 2) for x in (1, 2)),
    "<|media_start|>",
    "<|media_end|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|image>",
    "<image|>",
)
TEMPLATE = "{% for m in messages %}<1>{{ m.content }}<2>{% endfor %}{% if add_generation_prompt %}<3>{% endif %}"
HEARING = ("<|audio_bos|>", "<|audio_eos|>", "[BEGIN_AUDIO]", "<sound>", "<|audio_start|>", "<|audio_end|>")


def write_encoder(family: str, path: Path, width: int) -> None:
    """The mmproj file of a family in vision_models.py or sound_models.py, for a text model of some width."""
    if family in sound_models.FAMILIES:
        sound_models.write(family, path, width)
        return
    vision_models.write(family, path, width)


def write_talking(source: Path, path: Path) -> None:
    """A tiny text model as a file with a vocabulary, `<0>`, `<1>` and so on, and what is around pictures and sounds."""
    file = open_model(source)
    size = file.tensors["token_embd.weight"].shape[0]
    around = SPECIAL + HEARING
    texts = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [f"<{i}>" for i in range(size - len(around))] + list(around),
        "tokenizer.ggml.scores": np.zeros(size, np.float32),
        "tokenizer.ggml.token_type": np.full(size, 4, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    if "qwen3vl" in str(file.metadata["general.architecture"]):
        texts[f"{file.metadata['general.architecture']}.n_deepstack_layers"] = 1
    ids = {f"tokenizer.ggml.{name}_token_id": Kind(ValueType.UINT32) for name in ("bos", "eos", "unknown")}
    deep = {key: Kind(ValueType.UINT32) for key in texts if key.endswith("n_deepstack_layers")}
    write(path, file.metadata | texts, list(file.tensors.values()), metadata_types=file.metadata_types | ids | deep)
