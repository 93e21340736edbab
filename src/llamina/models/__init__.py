"""One file per architecture, found by its name in `general.architecture`."""

import difflib
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

from llamina.errors import RequestError, UnsupportedModel
from llamina.models.config import Config
from llamina.models.decoder import Decoder
from llamina.models.rope_overrides import RopeOverrides
from llamina.models.weights import Weights
from llamina.ops import Weight

# The files here that are not architectures.
SHARED = {"blocks", "config", "decoder", "delta", "gemma_parts", "rope_overrides", "ssm", "weights"}
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
    "eurobert": "modern_bert",
    "exaone": "qwen2",
    "gemma-embedding": "gemma3",
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
    "llama-embed": "llama",
    "mistral4": "deepseek2",
    "nemotron_h": "nemotron_h",
    "nemotron_h_moe": "nemotron_h",
    "neo-bert": "modern_bert",
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
    "rwkv6qwen2": "rwkv6",
    "seed_oss": "seed_oss",
    "spark2_5": "spark2_5",
    "starcoder": "gpt2",
    "xverse": "llama",
}
GROUP = "llamina.architectures"  # of entry points: NAME = "package.module:Model"
_registered: dict[str, type[Decoder]] = {}


def architectures() -> list[str]:
    """Every name of `general.architecture` that can be run: ours, those of other packages, and registered ones."""
    return sorted(_ours() | _registered.keys() | {entry.name for entry in entry_points(group=GROUP)})


def _ours() -> set[str]:
    files = {module.name for module in iter_modules(__path__)} - SHARED
    return {name.replace("_", "-") for name in files - ALIASES.keys()} | ALIASES.keys()


def register_architecture(name: str, model: type[Decoder]) -> None:
    """Let a class run the files whose `general.architecture` is `name`, in this process.

    A package has an entry point of the group `llamina.architectures` instead, and needs no call. Registering a name
    again replaces its class. Raises RequestError for a class that is no `Decoder`, and for a name that llamina has.
    """
    if not isinstance(name, str) or not name:
        raise RequestError(f"name is {name!r}: it must be the text of general.architecture", "name")
    if name in _ours():
        raise RequestError(f"{name!r} is an architecture of llamina: give yours another name", "name")
    _check_model(model, name)
    _registered[name] = model


def _check_model(model: object, name: str) -> type[Decoder]:
    if not isinstance(model, type) or not issubclass(model, Decoder):
        raise RequestError(f"the model of {name!r} is {model!r}: it must be a class that extends Decoder", "model")
    return model


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
    model = _model(name)(Config(metadata, context, rope), Weights(tensors))
    model.config.check_overridden()
    return model


def about(name: str) -> str:
    """What an architecture covers, in a sentence: the first line of its file."""
    model = _model(name)
    return str(model.__doc__ or import_module(model.__module__).__doc__ or "").partition("\n")[0]


def _model(name: str) -> type[Decoder]:
    """The class of an architecture. Raises UnsupportedModel if there is none, or its package cannot be used."""
    if name in _ours():
        module = import_module(f"{__name__}.{ALIASES.get(name, name.replace('-', '_'))}")
        return _check_model(module.Model, name)
    if name in _registered:
        return _registered[name]
    for entry in entry_points(group=GROUP, name=name):
        package = entry.dist.name if entry.dist is not None else entry.value
        try:
            return _check_model(entry.load(), name)
        except Exception as error:  # whatever the package does when it is imported
            raise UnsupportedModel(f"the package {package}, which has the architecture {name!r}: {error}") from error
    known = architectures()
    near = ", ".join(difflib.get_close_matches(name, known, 3, cutoff=0))
    raise UnsupportedModel(f"architecture {name!r} is not known here; the nearest of the {len(known)} known are {near}")


__all__ = ["Config", "Decoder", "RopeOverrides", "Weights", "about", "architectures", "build", "register_architecture"]
