"""The facts about a GGUF file: sizes, formats, memory, and whether it can be run."""

from typing import Any

import numpy as np

from llamina.backends import KV_TYPES, backend, state_bytes
from llamina.cli.model_features import features
from llamina.engine.runner.load import weights_of
from llamina.errors import KernelError, LlaminaError
from llamina.gguf import GGUF
from llamina.models import about, architectures, build
from llamina.ops.batch import PAGE
from llamina.plan import Plan, record

DEVICE = "cpu"  # the backend that files are checked for
KEPT = 1024  # tokens whose keys and values are counted
SHORT = 16  # arrays up to this long are shown whole
SHOWN = 5
WIDTH = 100


def summary(file: GGUF) -> dict[str, Any]:
    """The facts that `llamina show` prints; None for what the file does not say."""
    architecture = file.metadata.get("general.architecture")
    parameters = sum(_elements(t.shape) for t in file.tensors.values())
    nbytes = sum(t.nbytes for t in file.tensors.values())
    plan, reason = _plan(file)

    def of(key: str) -> Any:
        return plain(file.metadata.get(f"{architecture}.{key}"))

    return {
        "file": file.source,
        "name": file.metadata.get("general.name"),
        "architecture": architecture,
        "covers": about(str(architecture)) if architecture in architectures() else None,
        "runs": reason is None,
        "reason": reason,
        "parameters": parameters,
        "bytes": nbytes,
        "bits_per_weight": round(8 * nbytes / parameters, 4) if parameters else 0.0,
        "formats": _formats(file),
        "memory": {"weights": nbytes, **(kept(plan) if plan else {})},
        "context": of("context_length"),
        "layers": of("block_count"),
        "width": of("embedding_length"),
        "heads": of("attention.head_count"),
        "kv_heads": of("attention.head_count_kv"),
        "experts": of("expert_count"),
        "experts_used": of("expert_used_count"),
        "vocabulary": _vocabulary(file),
        "chat_template": "tokenizer.chat_template" in file.metadata,
        "features": features(plan) if plan else None,
        "version": file.version,
        "byte_order": file.byteorder,
    }


def blueprint(file: GGUF) -> Plan:
    """The plan of a model, recorded from its header alone. Raises UnsupportedModel if it cannot be run."""
    return record(build(file.metadata, weights_of(file, read=False)).forward)


def kept(plan: Plan) -> dict[str, Any]:
    """Bytes of the KV cache for 1,024 tokens, by its type, and of the recurrent state of a sequence.

    Where layers have a sliding window, tokens outside of it take less.
    """
    sizes = {kind: state_bytes(plan, kind) for kind in KV_TYPES}
    pages = KEPT // PAGE
    return {
        "per_1024_tokens": {kind: pages * (of["page"] + of["window"]) for kind, of in sizes.items()},
        "per_1024_tokens_out_of_window": {kind: pages * of["page"] for kind, of in sizes.items()}
        if sizes["f16"]["window"]
        else None,
        "per_sequence": sizes["f16"]["slot"],
    }


def _plan(file: GGUF) -> tuple[Plan | None, str | None]:
    """The plan, and the reason if it cannot be run."""
    if str(file.metadata.get("general.type")) == "adapter":
        return None, "it is a LoRA adapter: use it with --lora beside a model"
    try:
        plan = blueprint(file)
    except LlaminaError as error:
        return None, str(error)
    try:
        backend(DEVICE).check(plan)
    except KernelError as error:
        return plan, str(error)
    return plan, None


def _formats(file: GGUF) -> dict[str, dict[str, Any]]:
    """Tensors, parameters and bytes of each format, the largest first, and the backend that has a kernel for it."""
    known = backend(DEVICE).formats
    found: dict[str, dict[str, Any]] = {}
    for tensor in file.tensors.values():
        new = {"tensors": 0, "parameters": 0, "bytes": 0, "kernel": DEVICE if tensor.type.name in known else None}
        of = found.setdefault(tensor.type.name, new)
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
        "reason": _unreadable(file) if isinstance(tokens, list) else None,
    }


def _unreadable(file: GGUF) -> str | None:
    """The reason if the vocabulary cannot be used."""
    from llamina.tokenizer.vocabulary import Vocabulary

    try:
        Vocabulary.read(file.metadata)
    except LlaminaError as error:
        return str(error)
    return None


def tensors_json(file: GGUF) -> list[dict[str, Any]]:
    """The tensors in the order of the file."""
    return [
        {"name": t.name, "type": t.type.name, "shape": list(t.shape), "offset": t.offset, "bytes": t.nbytes}
        for t in file.tensors.values()
    ]


def metadata_json(file: GGUF) -> dict[str, Any]:
    """The metadata; of a long array, its length and first elements."""
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
