"""How much errors in a model's matrices matter, measured: groups of them are damaged, and predictions compared.

A group is the matrices of one kind in a third of the layers. Each in turn gets the errors of a type of few bits, while
all others are as they were; the KL divergence from the model as it was, divided by the errors, is the sensitivity of
the group. Divergences of small errors add up, so a sum over all matrices tells what a choice of types will do.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from llamina.backends.encode import Encoder, Job, prepare
from llamina.bench.divergence import ModelBase, measure_divergence
from llamina.bench.saved_logits import Rows
from llamina.engine import load
from llamina.gguf import GGUF, Tensor, TensorType, tensor_type
from llamina.quant import decode, encode
from llamina.quantization import Imatrix
from llamina.quantization.tensors import is_quantized, layer_of, role_of
from llamina.quantization.types import Facts
from llamina.quantization.write import importances_of

PARTS = 3  # of the layers
SUPER_BLOCK, SMALL_BLOCK = "Q3_K", "Q4_0"  # types whose errors are given to a group
Progress = Callable[[str, int, int], None]


def measure_sensitivities(
    file: GGUF,
    text: str,
    *,
    imatrix: Imatrix | None = None,
    size: int = 512,
    chunks: int = 2,
    threads: int | None = None,
    progress: Progress | None = None,
    **loading: Any,
) -> dict[str, float]:
    """The sensitivity of each matrix of a model, by its name: KL divergence for a relative error of 1.

    The text is read in windows of `size` tokens, the first `chunks` of them. `progress` is told the group that is being
    measured, those done, and their number; `loading` are options of `load`. Raises RequestError for a text that is too
    short.
    """
    groups = _groups(file)
    kinds = {_probe(tensor) for tensors in groups.values() for tensor in tensors}
    prepare([(kind, weighted) for kind in kinds for weighted in {False, imatrix is not None}])
    loading |= {"context": size, "threads": threads, "max_sequences": 1, "progress": _silent}
    found: dict[str, float] = {}
    with load(file, **loading) as engine, Encoder(threads or os.cpu_count() or 1) as encoder:
        base = _Kept(ModelBase(engine, text, size, chunks))
        for done, (name, tensors) in enumerate(groups.items()):
            if progress is not None:
                progress(name, done, len(groups))
            damaged, error = dict(file.tensors), 0.0
            for tensor in tensors:
                damaged[tensor.name], own = _damaged(tensor, imatrix, encoder)
                error += own
            with load(replace(file, tensors=damaged), **loading) as other:
                divergence = measure_divergence(other, base, lambda done, total: None).mean
            found |= dict.fromkeys((tensor.name for tensor in tensors), divergence / error if error else 0.0)
    if progress is not None:
        progress("all groups", len(groups), len(groups))
    return found


class _Kept:
    """A base that computes each window once."""

    def __init__(self, base: ModelBase) -> None:
        self._base, self._rows = base, dict[int, Rows]()
        self.windows, self.vocab = base.windows, base.vocab

    def rows(self, index: int) -> Rows:
        if index not in self._rows:
            self._rows[index] = self._base.rows(index)
        return self._rows[index]


def _groups(file: GGUF) -> dict[str, list[Tensor]]:
    """The matrices that are quantized, by kind and part of the layers."""
    facts = Facts.of(file.metadata, importances=False)
    found: dict[str, list[Tensor]] = {}
    for tensor in file.tensors.values():
        if is_quantized(tensor.name, tensor.shape, facts.architecture):
            layer, role = layer_of(tensor.name), role_of(tensor.name)
            part = "" if layer is None else f", part {1 + PARTS * layer // max(facts.layers, layer + 1)}"
            kind = role if role != "other" else tensor.name.rpartition(".")[0].rpartition(".")[2]
            found.setdefault(kind + part, []).append(tensor)
    return found


def _probe(tensor: Tensor) -> TensorType:
    return tensor_type(SMALL_BLOCK if tensor.shape[-1] % 256 else SUPER_BLOCK)


def _damaged(tensor: Tensor, imatrix: Imatrix | None, encoder: Encoder) -> tuple[Tensor, float]:
    """A tensor with the errors of a type of few bits, in its own type, and the error as a share of the tensor."""
    kind = _probe(tensor)
    if tensor.shape[-1] % kind.block or tensor.type.block > 1:
        return tensor, 0.0
    importances = importances_of(imatrix, tensor.name, tensor.shape)
    rows = tensor.data.reshape(prod(tensor.shape[:-1]), -1)
    parts, error, power = [], 0.0, 0.0
    for number, part in enumerate(np.split(rows, 1 if importances is None else len(importances))):
        given = None if importances is None else importances[number]
        values = decode(part, tensor.type)
        again = decode(encoder.encode(Job(part, tensor.type, kind, given)), kind)
        weights = np.ones(1, np.float32) if given is None else given
        error += float(((values - again) ** 2 * weights).sum(dtype=np.float64))
        power += float((values**2 * weights).sum(dtype=np.float64))
        parts.append(encode(again, tensor.type).reshape(-1).view(np.uint8))
    data = np.concatenate(parts)
    return Tensor(tensor.name, tensor.shape, tensor.type, 0, "little", data), error / power if power else 0.0


def _silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""
