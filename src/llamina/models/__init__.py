"""One file per architecture, found by its name in `general.architecture`."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from llamina.errors import UnsupportedModel
from llamina.models.config import Config
from llamina.models.decoder import Decoder
from llamina.models.rope_overrides import RopeOverrides
from llamina.models.weights import Weights
from llamina.ops import Weight

SHARED = {
    "blocks",
    "config",
    "decoder",
    "delta",
    "rope_overrides",
    "ssm",
    "weights",
}  # the files here that are not architectures
ALIASES = {  # architectures that share a file, and those whose own name has an underscore
    "bailingmoe": "deepseek",
    "bailingmoe2": "dots1",
    "chatglm": "llama",
    "codeshell": "starcoder2",
    "cohere2": "command_r",
    "deepseek32": "deepseek2",
    "dream": "llada",
    "ernie4_5": "ernie4_5",
    "ernie4_5-moe": "ernie4_5",
    "exaone": "qwen2",
    "glm-dsa": "deepseek2",
    "granite_swa": "granite",
    "granitehybrid": "granite",
    "granitemoe": "granite",
    "hrm_text": "hrm_text",
    "hunyuan-moe": "hunyuan_dense",
    "hunyuan_vl": "hunyuan_dense",
    "hy_v3": "dots1",
    "internlm2": "llama",
    "jais2": "nemotron",
    "jina-bert-v2": "bert",
    "jina-bert-v3": "bert",
    "lfm2moe": "lfm2",
    "mistral4": "deepseek2",
    "nemotron_h": "nemotron_h",
    "nemotron_h_moe": "nemotron_h",
    "nomic-bert": "bert",
    "nomic-bert-moe": "bert",
    "openelm": "qwen3",
    "orion": "stablelm",
    "paddleocr": "qwen2vl",
    "pangu-embedded": "qwen2vl",
    "phimoe": "phi3",
    "qwen": "qwen2",
    "qwen35": "qwen3next",
    "qwen35moe": "qwen3next",
    "qwen3moe": "qwen3",
    "qwen3vl": "qwen3",
    "qwen3vlmoe": "qwen3",
    "rnd1": "llada_moe",
    "seed_oss": "seed_oss",
    "spark2_5": "spark2_5",
    "starcoder": "gpt2",
    "xverse": "llama",
}


def architectures() -> list[str]:
    """Every name of `general.architecture` that can be run."""
    files = {module.name for module in iter_modules(__path__)} - SHARED
    return sorted({name.replace("_", "-") for name in files - ALIASES.keys()} | ALIASES.keys())


def build(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Weight],
    context: int | None = None,
    rope: RopeOverrides | None = None,
) -> Decoder:
    """The model a file describes, with RoPE settings in place of the file's if they are given.

    Raises UnsupportedModel for an architecture that is not known, ModelFileError for a file that does not fit it, and
    RequestError for RoPE settings where there is no RoPE.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise UnsupportedModel(f"general.architecture is {name!r}: the file does not say what model it holds")
    if name not in architectures():
        known = architectures()
        near = ", ".join(difflib.get_close_matches(name, known, 3, cutoff=0))
        raise UnsupportedModel(
            f"architecture {name!r} is not known here; the nearest of the {len(known)} known are {near}"
        )
    model: Decoder = _module(name).Model(Config(metadata, context, rope), Weights(tensors))
    model.config.check_overridden()
    return model


def about(name: str) -> str:
    """What an architecture covers, in a sentence: the first line of its file."""
    return str(_module(name).__doc__).partition("\n")[0]


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{ALIASES.get(name, name.replace('-', '_'))}")


__all__ = ["Config", "Decoder", "RopeOverrides", "Weights", "about", "architectures", "build"]
