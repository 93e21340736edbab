"""Tiny mmproj files of each family, and tiny text models that speak."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from golden import vision_models
from llamina.gguf import Kind, ValueType, open_model, write

SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<start_of_image>", "<end_of_image>", "<img>", "</img>", "\n")
PIXELS = ("image_min_pixels", "image_max_pixels")  # which a newer llama.cpp minds than the golden facts are of
TEMPLATE = "{% for m in messages %}<1>{{ m.content }}<2>{% endfor %}{% if add_generation_prompt %}<3>{% endif %}"


@pytest.fixture(scope="session")
def mmproj(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The mmproj file of a family in vision_models.py, for a text model of some width."""
    folder = tmp_path_factory.mktemp("mmproj")

    def find(family: str, width: int = vision_models.TEXT) -> Path:
        path = folder / f"mmproj-{family}-{width}.gguf"
        if not path.exists():
            newer = () if width == vision_models.TEXT else PIXELS
            vision_models.write(family, path, width, newer)
        return path

    return find


@pytest.fixture(scope="session")
def talking(files: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny model of a name as a file with a vocabulary, `<0>` to `<127>` and what is around pictures."""
    folder = tmp_path_factory.mktemp("talking")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if path.exists():
            return path
        file = open_model(files(name))
        size = file.tensors["token_embd.weight"].shape[0]
        tokens = [f"<{i}>" for i in range(size - len(SPECIAL))] + list(SPECIAL)
        texts = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.zeros(size, np.float32),
            "tokenizer.ggml.token_type": np.full(size, 4, np.int32),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_bos_token": False,
            "tokenizer.ggml.add_space_prefix": False,
            "tokenizer.chat_template": TEMPLATE,
        }
        types = file.metadata_types | {
            f"tokenizer.ggml.{name}_token_id": Kind(ValueType.UINT32) for name in ("bos", "eos", "unknown")
        }
        write(path, file.metadata | texts, list(file.tensors.values()), metadata_types=types)
        return path

    return find
