"""A GGUF file in numbers, and whether it can be run."""

from typing import Any

import numpy as np

from llamina.errors import LlaminaError
from llamina.gguf import GGUF
from llamina.ops import Weight
from llamina.plan import Plan, record

SHORT = 16  # arrays up to this long are shown whole
SHOWN = 5
WIDTH = 100


def summary(file: GGUF) -> dict[str, Any]:
    """What people ask of a file first. None where it does not say."""
    architecture = file.metadata.get("general.architecture")
    parameters = sum(_elements(t.shape) for t in file.tensors.values())
    nbytes = sum(t.nbytes for t in file.tensors.values())
    reason = obstacle(file)

    def of(key: str) -> Any:
        return plain(file.metadata.get(f"{architecture}.{key}"))

    return {
        "file": file.source,
        "name": file.metadata.get("general.name"),
        "architecture": architecture,
        "parameters": parameters,
        "bytes": nbytes,
        "bits_per_weight": round(8 * nbytes / parameters, 4) if parameters else 0.0,
        "formats": _formats(file),
        "context": of("context_length"),
        "layers": of("block_count"),
        "width": of("embedding_length"),
        "heads": of("attention.head_count"),
        "kv_heads": of("attention.head_count_kv"),
        "experts": of("expert_count"),
        "experts_used": of("expert_used_count"),
        "vocabulary": _vocabulary(file),
        "chat_template": "tokenizer.chat_template" in file.metadata,
        "version": file.version,
        "byte_order": file.byteorder,
        "runs": reason is None,
        "reason": reason,
    }


def blueprint(file: GGUF) -> Plan:
    """The plan of a model, from its header alone."""
    from llamina.models import build

    return record(build(file.metadata, _weights(file)).forward)


def obstacle(file: GGUF) -> str | None:
    """Why this build cannot run the model, or None."""
    try:
        blueprint(file)
    except LlaminaError as error:
        return str(error)
    return None


def _weights(file: GGUF) -> dict[str, Weight]:
    """Tensors as weights that have a shape and a format, but no data."""
    from llamina.quant import format_of

    nothing = np.zeros(0, np.uint8)
    weights: dict[str, Weight] = {}
    for name, tensor in sorted(file.tensors.items()):  # biases sort before weights
        bias = weights.get(f"{name.removesuffix('.weight')}.bias") if name.endswith(".weight") else None
        weights[name] = Weight(name, tensor.shape, format_of(tensor.type), nothing, bias)
    return weights


def _formats(file: GGUF) -> dict[str, dict[str, int]]:
    """How many tensors, parameters and bytes are in each format, the heaviest first."""
    found: dict[str, dict[str, int]] = {}
    for tensor in file.tensors.values():
        of = found.setdefault(tensor.type.name, {"tensors": 0, "parameters": 0, "bytes": 0})
        of["tensors"] += 1
        of["parameters"] += _elements(tensor.shape)
        of["bytes"] += tensor.nbytes
    return dict(sorted(found.items(), key=lambda item: -item[1]["bytes"]))


def _vocabulary(file: GGUF) -> dict[str, Any]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    return {
        "size": len(tokens) if isinstance(tokens, list) else None,
        "model": file.metadata.get("tokenizer.ggml.model"),
        "pre": file.metadata.get("tokenizer.ggml.pre"),
    }


def tensors_json(file: GGUF) -> list[dict[str, Any]]:
    """The tensors in the order of the file."""
    return [
        {"name": t.name, "type": t.type.name, "shape": list(t.shape), "offset": t.offset, "bytes": t.nbytes}
        for t in file.tensors.values()
    ]


def metadata_json(file: GGUF) -> dict[str, Any]:
    """The metadata, of a long array its length and first elements."""
    return {key: plain(value) for key, value in file.metadata.items()}


def plain(value: Any) -> Any:
    """A metadata value in JSON's types."""
    if isinstance(value, np.ndarray):
        value = (
            value[:SHORT].tolist() if len(value) <= SHORT else {"length": len(value), "first": value[:SHOWN].tolist()}
        )
    elif isinstance(value, list):
        kept = [plain(item) for item in value[: SHORT if len(value) <= SHORT else SHOWN]]
        value = kept if len(value) <= SHORT else {"length": len(value), "first": kept}
    elif isinstance(value, float) and not np.isfinite(value):
        value = str(value)  # JSON has no such numbers
    return value


def abbreviate(value: Any) -> str:
    """A metadata value on one line."""
    known = plain(value)
    if isinstance(known, dict):
        return f"{known['length']:,} × [{', '.join(map(repr, known['first']))}, …]"
    text = repr(known)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}… ({len(text):,} characters)"


def _elements(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
