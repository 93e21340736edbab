"""From a file or a pulled model's name to an engine."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from llamina.engine.engine import Engine
from llamina.engine.speculation.choose import open_draft
from llamina.engine.speculation.drafter import Drafter
from llamina.errors import RequestError
from llamina.gguf import GGUF, open_model
from llamina.models import build
from llamina.ops import Weight
from llamina.quant import format_of

DEFAULT_CONTEXT = 8192
MAX_CONTEXT = 1 << 24  # no trained context comes near this


def load(
    model: str | os.PathLike[str] | GGUF,
    *,
    backend: str = "cpu",
    threads: int | None = None,
    context: int | None = None,
    draft: str | os.PathLike[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> Engine:
    """Load a GGUF file, or a pulled model by its name. Without `context`, the trained one, at most 8192.

    `draft` is a smaller model with the same vocabulary that guesses tokens ahead, or a folder to choose one from.
    """
    if context is not None and not 2 <= context <= MAX_CONTEXT:
        raise RequestError(f"context is {context}: from 2 to {MAX_CONTEXT} tokens are expected", "context")
    file = model if isinstance(model, GGUF) else open_model(locate(model))
    weights = weights_of(file)
    trained = build(file.metadata, weights).config.trained_context
    built = build(file.metadata, weights, context or min(trained, DEFAULT_CONTEXT))
    smaller = None if draft is None else open_draft(locate(draft), file)
    engine = Engine(file, built, backend=backend, threads=threads, progress=progress, **options)
    if smaller is not None:
        own = {name: value for name, value in options.items() if name in ("kv_type", "max_tokens", "max_sequences")}
        drafts = load(smaller, backend=backend, threads=threads, context=engine.context, progress=progress, **own)
        engine.speculation.drafter = Drafter(drafts, engine.plan.vocab)
    return engine


def locate(model: str | os.PathLike[str]) -> Path:
    """The path itself if it is there, else the pulled model of that name."""
    path = Path(model)
    if path.exists():
        return path
    from llamina.hub import find

    return find(os.fspath(model))


def weights_of(file: GGUF, read: bool = True) -> dict[str, Weight]:
    """Every tensor as a weight (without data, unless `read`); NAME.bias and NAME.scale come along with NAME.weight."""
    weights: dict[str, Weight] = {}
    for name, tensor in sorted(file.tensors.items()):  # biases and scales sort before weights
        stem = name.removesuffix("weight")
        bias, scale = (weights.get(stem + part) if stem != name else None for part in ("bias", "scale"))
        data = tensor.data if read else np.zeros(0, np.uint8)
        weights[name] = Weight(name, tensor.shape, format_of(tensor.type), data, bias, scale)
    return weights
