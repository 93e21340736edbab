"""What Ollama's lists say of a model, read from the header of its file; nothing is loaded for it."""

import hashlib
import numbers
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from llamina.engine.runner.encoders import encoder_beside
from llamina.engine.runner.load import locate
from llamina.errors import LlaminaError
from llamina.gguf import GGUF, fingerprint, open_model
from llamina.hub.shards import shards_of
from llamina.server.ollama.schema import Details, TensorInfo
from llamina.server.ollama.shared_fields import able_to_think

# general.file_type, as llama.cpp numbers mixtures of formats
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
UNKNOWN = datetime.fromtimestamp(0, UTC)
TEMPLATE = "tokenizer.chat_template"


@dataclass(frozen=True)
class Facts:
    """Of one file, or all shards of it."""

    details: Details
    size: int = 0
    modified: datetime = UNKNOWN
    fingerprint: str = ""
    template: str = ""
    license: str = ""
    capabilities: list[str] = field(default_factory=list)
    path: Path | None = None


def facts(model: str) -> Facts:
    """The facts of a model, by its file or its name; none of a file that is not there or cannot be read."""
    try:
        path = locate(model)
        return _facts(path, path.stat().st_mtime_ns)
    except (LlaminaError, OSError):
        return Facts(details=_details("", "", "", 0, 0))


@lru_cache(256)
def _facts(path: Path, modified: int) -> Facts:
    file = open_model(path)
    metadata = file.metadata
    architecture = str(metadata.get("general.architecture", ""))
    template = str(metadata.get(TEMPLATE, ""))
    embeds = f"{architecture}.pooling_type" in metadata
    thinks = ["thinking"] if able_to_think(template) else []
    sees = ["vision"] if encoder_beside(path) is not None else []
    found = Facts(
        size=sum(shard.stat().st_size for shard in shards_of(path)),
        modified=datetime.fromtimestamp(modified / 1e9, UTC),
        fingerprint=fingerprint(file),
        details=_details(
            architecture,
            human_number(parameters(file)),
            _quantization(file),
            _number(metadata.get(f"{architecture}.context_length")),
            _number(metadata.get(f"{architecture}.embedding_length")),
        ),
        template=template,
        license=str(metadata.get("general.license", "")),
        capabilities=["embedding"] if embeds else ["completion", *(["tools", *thinks] if template else []), *sees],
        path=path,
    )
    file.close()
    return found


def _number(value: object) -> int:
    return int(value) if isinstance(value, numbers.Integral) else 0


def _details(family: str, size: str, quantization: str, context: int, width: int) -> Details:
    found: Details = {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": size,
        "quantization_level": quantization,
    }
    if context:
        found["context_length"] = context
    if width:
        found["embedding_length"] = width
    return found


def parameters(file: GGUF) -> int:
    return sum(prod(tensor.shape) for tensor in file.tensors.values())


def human_number(n: int) -> str:
    """A count as Ollama shows it: 8.0B, 134.52M, 292K."""
    if n >= 1e9:
        return f"{n / 1e9:.1f}B"
    return f"{n / 1e6:.2f}M" if n >= 1e6 else f"{n / 1e3:.0f}K"


def _quantization(file: GGUF) -> str:
    """The mixture that the file names, else the format that most of its bytes have."""
    kind = file.metadata.get("general.file_type")
    if isinstance(kind, numbers.Integral) and int(kind) in FILE_TYPES:
        return FILE_TYPES[int(kind)]
    sizes: Counter[str] = Counter()
    for tensor in file.tensors.values():
        sizes[tensor.type.name] += tensor.nbytes
    return sizes.most_common(1)[0][0] if sizes else "unknown"


def digest(model: Facts, modelfile: str) -> str:
    """64 digits that change with the file's contents and with what the model was created with."""
    return hashlib.sha256(f"{model.fingerprint}\0{modelfile}".encode()).hexdigest()


def metadata(path: Path, verbose: bool) -> dict[str, Any]:
    """The file's metadata as JSON; arrays only if `verbose`."""
    file = open_model(path)
    found = {
        name: _plain(value, verbose) for name, value in file.metadata.items() if name not in ("general.name", TEMPLATE)
    }
    found["general.parameter_count"] = parameters(file)
    file.close()
    return found


def tensors(path: Path) -> list[TensorInfo]:
    """Names, formats and shapes; the first of a shape's numbers is that of the fastest dimension, as in the file."""
    file = open_model(path)
    found: list[TensorInfo] = [
        {"name": tensor.name, "type": tensor.type.name, "shape": [int(n) for n in reversed(tensor.shape)]}
        for tensor in file.tensors.values()
    ]
    file.close()
    return found


def _plain(value: Any, verbose: bool) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return [_plain(item, True) for item in value] if verbose else None
