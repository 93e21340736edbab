"""Adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.adapters.adapter import Adapter
from llamina.convert.edits import Edit, interleave_keys, interleave_queries, transpose, ungroup_falcon, ungroup_heads
from llamina.convert.families import FAMILIES, Family
from llamina.convert.lazy import Lazy, floats
from llamina.convert.names import WRAPPERS
from llamina.convert.rename import targets
from llamina.convert.safetensors import tensors_in
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, ModelNotFound, UnsupportedModel
from llamina.ops import LowRank
from llamina.tokenizer.huggingface.json_file import read_json

Array = npt.NDArray[np.float32]
PART = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_(embedding_)?([AB])(?:\.default)?(?:\.weight)?$")
ROWS: tuple[Edit, ...] = (interleave_queries, interleave_keys, ungroup_heads, ungroup_falcon)
REFUSED = {"use_dora": False, "bias": "none", "lora_bias": False, "layer_replication": None, "use_qalora": False}
REBASED = ("pissa", "olora", "corda")  # initializations that change the model itself


def read_folder(folder: Path, metadata: Mapping[str, Any]) -> Adapter:
    """Return the adapter in a folder, for the model of this metadata, whose heads say how rows were permuted.

    Raises ModelNotFound, ModelFileError or UnsupportedModel.
    """
    config = _config(folder)
    architecture = str(metadata.get("general.architecture"))
    reader = _Reader(folder, config, architecture, _settings(metadata, architecture))
    tokens = config.get("alora_invocation_tokens") or ()
    if not isinstance(tokens, list | tuple) or not all(isinstance(t, int) for t in tokens):
        raise ModelFileError(f"{folder}: alora_invocation_tokens is {tokens!r}: it must be tokens")
    return Adapter(str(folder), architecture, reader.pairs(), tuple(tokens))


def _config(folder: Path) -> dict[str, Any]:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / name).is_file():
            raise ModelNotFound(f"{folder} has no {name}: it is not a folder of PEFT")
    config = read_json(folder / "adapter_config.json")
    if (kind := config.get("peft_type")) != "LORA":
        raise UnsupportedModel(f"{folder}: peft_type is {kind!r}: only LORA is supported")
    for key, usual in REFUSED.items():
        if (value := config.get(key, usual)) not in (usual, None):
            raise UnsupportedModel(f"{folder}: {key} is {value!r}, which is not supported: train it with {usual!r}")
    if str(init := config.get("init_lora_weights")).startswith(REBASED):
        raise UnsupportedModel(
            f"{folder}: init_lora_weights is {init!r}, which changes the model: convert it to a LoRA"
        )
    return config


def _settings(metadata: Mapping[str, Any], architecture: str) -> Settings:
    """Return the settings that edits of matrices need, under the names of config.json."""
    heads = metadata.get(f"{architecture}.attention.head_count", 1)
    kv_heads = metadata.get(f"{architecture}.attention.head_count_kv", heads)
    return Settings(
        {
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "num_kv_heads": kv_heads,
            "new_decoder_architecture": True,  # Falcon: the number of key heads is the file's
            "num_experts": metadata.get(f"{architecture}.expert_count"),
        }
    )


class _Reader:
    """Reads one folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any], architecture: str, settings: Settings) -> None:
        self._folder, self._config, self._settings = folder, config, settings
        self._architecture = architecture
        self._families = [family for family in FAMILIES.values() if family.architecture == architecture]
        if not self._families:
            known = ", ".join(sorted({family.architecture for family in FAMILIES.values()}))
            raise UnsupportedModel(
                f"{folder}: PEFT's names for {architecture} are unknown: known are those for {known}"
            )

    def pairs(self) -> dict[str, LowRank]:
        """Return the pairs by GGUF's names of the adapted matrices."""
        pairs: dict[str, LowRank] = {}
        experts: dict[str, dict[int, LowRank]] = {}
        for module, (a, b) in self._modules().items():
            name, slot, pair = self._pair(module, a, b)
            if slot is not None:
                experts.setdefault(name, {})[slot] = pair
            elif name in pairs:
                raise ModelFileError(f"{self._folder}: two modules would adapt {name}: one is {module}")
            else:
                pairs[name] = pair
        return pairs | {name: self._stacked(name, parts) for name, parts in experts.items()}

    def _modules(self) -> dict[str, tuple[Array, Array]]:
        """Return A and B by the names of modules; A of an embedding has a row for each token."""
        parts: dict[str, dict[str, Array]] = {}
        for theirs, tensor in tensors_in(self._folder / "adapter_model.safetensors").items():
            match = PART.match(theirs)
            if match is None:
                raise UnsupportedModel(
                    f"{self._folder} holds {theirs}, which is not part of a LoRA: adapt matrices only"
                )
            module, embedding, which = match.groups()
            values = floats(tensor.load(), tensor.dtype)
            parts.setdefault(module, {})[which] = values.T if embedding and which == "A" else values
        for module, pair in parts.items():
            if pair.keys() != {"A", "B"} or any(x.ndim != 2 for x in pair.values()):
                raise ModelFileError(
                    f"{self._folder}: lora_A and lora_B of {module} are not two matrices: get it again"
                )
        if not parts:
            raise ModelFileError(f"{self._folder} has no tensors: it adapts nothing")
        return {module: (pair["A"], pair["B"]) for module, pair in parts.items()}

    def _pair(self, module: str, a: Array, b: Array) -> tuple[str, int | None, LowRank]:
        """Return GGUF's name, the index of the expert (None: of none), and the pair with rows in GGUF's order."""
        short = WRAPPERS.sub("", module)
        family = self._family(short)
        name, slot, _ = next(targets(replace(family, edits={}), self._settings, f"{short}.weight", Lazy.here(b)))
        edit = family.edits.get(re.sub(r"^blk\.\d+\.", "", name).removesuffix(".weight"))
        if edit is not None and edit is not transpose and edit not in ROWS:
            raise UnsupportedModel(f"{self._folder} adapts {module}, which is not one matrix in GGUF")
        if edit in ROWS and edit is not None:
            b = floats(edit(Lazy.here(b), self._settings).load(), "F32")
        return name, slot, LowRank(np.ascontiguousarray(a), b, self._scale(module, b.shape[1]))

    def _family(self, module: str) -> Family:
        pattern = ".".join("*" if part.isdigit() else part for part in module.split("."))
        for family in self._families:
            if " " in family.names.get(pattern, ""):
                raise UnsupportedModel(f"{self._folder} adapts {module}, which is not one matrix in GGUF")
            if pattern in family.names:
                return family
        raise UnsupportedModel(f"{self._folder} adapts {module}, which {self._architecture} does not have")

    def _scale(self, module: str, rank: int) -> float:
        alpha = self._config.get("lora_alpha", 8)
        for pattern, value in (self._config.get("alpha_pattern") or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", module):
                alpha = value
                break
        if not isinstance(alpha, int | float) or isinstance(alpha, bool):
            raise ModelFileError(f"{self._folder}: lora_alpha is {alpha!r}: must be a number")
        return alpha / (sqrt(rank) if self._config.get("use_rslora") else rank)

    def _stacked(self, name: str, parts: Mapping[int, LowRank]) -> LowRank:
        """Return the pairs of experts as one, with the scale multiplied in; experts that are not adapted are zeros."""
        first, rank = next(iter(parts.values())), max(pair.rank for pair in parts.values())
        count = self._settings.count("num_experts")
        if max(parts) >= count:
            raise UnsupportedModel(f"{self._folder} adapts expert {max(parts)} of {name}, and the model has {count}")
        a, b = np.zeros((count, rank, first.a.shape[1]), np.float32), np.zeros((count, len(first.b), rank), np.float32)
        for slot, pair in parts.items():
            if (pair.a.shape[1], len(pair.b)) != (a.shape[2], b.shape[1]):
                raise ModelFileError(f"{self._folder}: the experts of {name} have different shapes: get it again")
            a[slot, : pair.rank], b[slot, :, : pair.rank] = pair.a, pair.b * np.float32(pair.scale)
        return LowRank(a, b, 1.0)
