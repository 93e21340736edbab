"""Golden models with other layers, run here and by llama.cpp."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from live import last_logits

import llamina
from golden import arch_models
from golden_facts import SPECS
from llamina.gguf import tensor_type, write

Tensors = dict[str, list[int] | None]  # by their names within a layer, GGUF's order of dimensions; None takes one away
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 128, 40)]


@dataclass(frozen=True)
class Variant:
    """A golden model with other layers: each like one of the golden layers, whose tensors may be changed."""

    name: str
    metadata: dict[str, Any]  # None takes a key away
    order: tuple[int, ...] = (0, 1)
    changes: dict[int, Tensors] = field(default_factory=dict)
    drop: tuple[str, ...] = ()  # tensors outside of layers
    arch: str | None = None  # another architecture made of the golden one


def no(*names: str) -> Tensors:
    return dict.fromkeys(names)


def save(path: Path, variant: Variant) -> None:
    spec = SPECS[variant.name]
    arch = variant.arch or spec["arch"]
    values = {key.replace(f"{spec['arch']}.", f"{arch}.", 1): value for key, (_, value) in spec["metadata"].items()}
    values |= {f"{arch}.{key}": value for key, value in variant.metadata.items()}
    values |= {f"{arch}.block_count": len(variant.order), "general.architecture": arch}
    shapes: Tensors = {n: s for n, s in spec["tensors"] if not n.startswith(("blk.", *variant.drop))}
    for layer, kind in enumerate(variant.order):
        own = {n.split(".", 2)[2]: s for n, s in spec["tensors"] if n.startswith(f"blk.{kind}.")}
        shapes |= {f"blk.{layer}.{n}": s for n, s in (own | variant.changes.get(kind, {})).items()}
    tensors = [
        (n, tuple(s[::-1]), tensor_type("F32"), arch_models.weight(n, s, 1).view(np.uint8))
        for n, s in shapes.items()
        if s is not None
    ]
    write(path, {key: value for key, value in values.items() if value is not None}, tensors)


def compare(variant: Variant, path: Path, kv_type: str = "f32", tolerance: float = 5e-6) -> None:
    """The logits of the last token, ours and llama.cpp's, which keeps keys and values in F16."""
    save(path, variant)
    with llamina.load(path, kv_type=kv_type, context=256) as engine:
        got = engine.logits(TOKENS)[-1]
    want = last_logits(path, TOKENS, 256)
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < tolerance
