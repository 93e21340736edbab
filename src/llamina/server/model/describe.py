"""What a server needs to know of a loaded model, read from its engine."""

import numbers
from math import prod
from typing import Any

from llamina.engine import Engine
from llamina.engine.runner.devices import gpu_weight_bytes
from llamina.server.model.frames import ModelInfo

LONGEST = 4096  # characters of a metadata value that is told; vocabularies and templates are longer


def describe(engine: Engine) -> ModelInfo:
    runner = engine.runner
    metadata, config = runner.file.metadata, runner.model.config
    known = "tokenizer.ggml.tokens" in metadata
    template = engine.tokenizer.chat_templates.get("default", "") if known else ""
    text = engine.tokenizer.token_text if known else None
    bos, eos = (engine.tokenizer.bos, engine.tokenizer.eos) if known else (None, None)
    return ModelInfo(
        path=str(runner.file.source),
        architecture=config.architecture,
        name=str(metadata.get("general.name", "")),
        context=engine.context,
        vocab=runner.plan.vocab,
        parameters=sum(prod(tensor.shape) for tensor in runner.file.tensors.values()),
        weight_bytes=runner.weight_bytes,
        device=_device(runner.backend.describe()),
        gpu_bytes=gpu_weight_bytes(runner.backend, runner.plan, runner.weight_bytes),
        causal=runner.model.causal,
        has_template=bool(template),
        template=template,
        pooling=engine.pooling,
        fingerprint=runner.fingerprint,
        metadata={key: plain for key, value in metadata.items() if (plain := _plain(value)) is not None},
        sampling=dict(runner.sampling),
        max_sequences=runner.budget.sequences,
        embedding_width=runner.model.embeddings.shape[-1],
        bos=text(bos) if text and bos is not None else "",
        eos=text(eos) if text and eos is not None else "",
        sees=runner.pictures.there,
        hears=runner.sounds.there,
    )


def _device(backend: dict[str, str]) -> str:
    """What computes, in words: `CPU`, `NVIDIA H200`, `2 x NVIDIA H200`, `20 layers on …, the others on the CPU`."""
    name = backend.get("device") or {"cpu": "CPU"}.get(backend["backend"], backend["backend"])
    if ranks := backend.get("tensor_parallel"):
        return f"{ranks} x {name}"
    layers = backend.get("gpu_layers")
    return name if layers is None else f"{layers} layers on {name}, the others on the CPU"


def _plain(value: Any) -> Any:
    """A short value that JSON has, or None."""
    if isinstance(value, bool | str):
        return value if isinstance(value, bool) or len(value) <= LONGEST else None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return None
