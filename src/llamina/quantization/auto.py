"""Types of tensors chosen by measured error under a budget: bits go to where they reduce the damage most.

The damage of a type to a tensor is the error that it makes, relative to what the tensor is, times the tensor's
sensitivity. Errors are measured by quantizing some of the tensor's rows. Columns count by their importances, so the
error is that of what the matrix makes of activations. All tensors begin with their smallest type; then, again and
again, the change that takes most damage away for a byte is made, until the budget is used up.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.encode import NEEDS_IMPORTANCES, Encoder, Job, prepare
from llamina.errors import RequestError
from llamina.gguf import GGUF, Tensor, TensorType, tensor_type
from llamina.quant import decode
from llamina.quantization.imatrix import Imatrix
from llamina.quantization.tensors import is_quantized, role_of
from llamina.quantization.types import FILE_TYPES, Facts, Options, fitting, needs_importances, writable
from llamina.quantization.write import Quantized, check_unquantized, importances_of, opened, quantize

SUPER_BLOCKS = (
    "IQ2_XXS", "IQ2_XS", "IQ2_S", "Q2_K", "IQ3_XXS", "IQ3_S", "Q3_K", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0",
)  # fmt: skip
SMALL_BLOCKS = ("Q2_0", "MXFP4", "IQ4_NL", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")  # where rows are no multiples of 256
USUAL = {"query": 0.5, "key": 0.5, "attention output": 0.5, "value": 1.0, "gate": 1.0, "up": 1.5, "down": 2.0}
"""Sensitivities of matrices of a layer, as measured of SmolLM2 and rounded; of others 1."""
OF_OUTPUT = 2.0  # that of the output matrix, for each layer: what it gets wrong, no layer can put right
SAMPLE = 1 << 19  # numbers of a tensor that its errors are measured on
FEWEST = 16  # rows of it, at least
Progress = Callable[[str, int, int], None]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A type that a tensor may have: its size in bytes, and its error as a share of the tensor."""

    type: TensorType
    nbytes: int
    error: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """The type and the error of each tensor that is quantized, and the file type that they come nearest to."""

    types: Mapping[str, TensorType]
    errors: Mapping[str, float]
    mix: str

    @property
    def options(self) -> Options:
        """What `quantize` is told, beside the file type."""
        return Options([(f"^{re.escape(name)}$", kind.name) for name, kind in self.types.items()])


def choose_types(
    source: str | os.PathLike[str] | GGUF,
    target: float,
    *,
    imatrix: Imatrix | None = None,
    sensitivities: Mapping[str, float] | None = None,
    types: Sequence[str] = (),
    overrides: Sequence[tuple[str, str]] = (),
    requantize: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    compiling: Progress | None = None,
) -> Chosen:
    """Types by which a model has at most `target` bits per weight, and least damage.

    `sensitivities` say how much a relative error in a tensor matters, by its name, and 1 for others; without them,
    what is usual for tensors of a kind (`USUAL`). `types` are the only ones to choose from, where given, and
    `overrides` are (pattern, type) of tensors that are not chosen. `progress` is told (tensor, done, in all). Raises
    RequestError if no choice is within the budget, and for tensors that are quantized already unless `requantize` is
    set.
    """
    with opened(source) as file:
        wanted = _Wanted(file, imatrix, [writable(name, "types") for name in types], overrides)
        tensors = wanted.tensors
        for tensor in tensors:
            if not requantize:
                check_unquantized(tensor)
        prepare(wanted.encoders(), compiling)
        found: dict[str, list[Candidate]] = {}
        with Encoder(threads or os.cpu_count() or 1) as encoder:
            for done, tensor in enumerate(tensors):
                if progress is not None:
                    progress(tensor.name, done, len(tensors))
                found[tensor.name] = wanted.measured(tensor, encoder)
        if progress is not None:
            progress("all tensors", len(tensors), len(tensors))
        numbers = sum(prod(tensor.shape) for tensor in file.tensors.values())
        kept = sum(tensor.nbytes for tensor in file.tensors.values() if tensor.name not in found)
        matter = usual_sensitivities(file) if sensitivities is None else sensitivities
    chosen = spend(found, target * numbers / 8 - kept, matter, lambda least: 8 * (least + kept) / numbers)
    return Chosen({n: c.type for n, c in chosen.items()}, {n: c.error for n, c in chosen.items()}, _mix(chosen))


def usual_sensitivities(file: GGUF) -> dict[str, float]:
    """What is usual for tensors of a kind, by their names."""
    output = OF_OUTPUT * Facts.of(file.metadata, importances=False).layers
    roles = {name: role_of(name) for name in file.tensors}
    last = "output" if "output" in roles.values() else "embedding"  # one matrix may be both
    return {name: output if role == last else USUAL.get(role, 1.0) for name, role in roles.items()}


def _mix(chosen: Mapping[str, Candidate]) -> str:
    """The file type whose main type has most bytes."""
    sizes = Counter[str]()
    for choice in chosen.values():
        sizes[choice.type.name] += choice.nbytes
    mixes = [(main, mix) for mix, (_, main) in FILE_TYPES.items() if tensor_type(main).block > 1]
    return next((mix for kind, _ in sizes.most_common() for main, mix in mixes if main == kind), "Q8_0")


def auto_quantize(
    source: str | os.PathLike[str] | GGUF,
    out: str | os.PathLike[str],
    target: float,
    *,
    imatrix: Imatrix | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    **choosing: Any,
) -> Quantized:
    """Write a model quantized to at most `target` bits per weight; other options are those of `choose_types`.

    `progress` is told of measuring (tensor, done, in all), then of writing (file, bytes done, bytes in all).
    """
    known = imatrix if isinstance(imatrix, Imatrix) or imatrix is None else Imatrix.read(imatrix)
    with opened(source) as file:
        chosen = choose_types(file, target, imatrix=known, **choosing)
        given = {name: choosing.get(name) for name in ("threads", "progress", "compiling")}
        requantize = choosing.get("requantize", False)
        return quantize(
            file, out, chosen.mix, imatrix=known, options=chosen.options, requantize=requantize, overwrite=overwrite,
            **given,
        )  # fmt: skip


class _Wanted:
    """What is to be measured: the tensors of a file that are quantized, and the types that each may have."""

    def __init__(
        self, file: GGUF, imatrix: Imatrix | None, types: list[TensorType], overrides: Sequence[tuple[str, str]]
    ) -> None:
        self._imatrix, self._types = imatrix, types
        try:
            self._overrides = [(re.compile(p), writable(kind, "overrides")) for p, kind in overrides]
        except re.error as error:
            raise RequestError(f"{error.pattern!r} is no regular expression: {error}", "overrides") from None
        architecture = Facts.of(file.metadata, imatrix is not None).architecture
        self.tensors = [t for t in file.tensors.values() if is_quantized(t.name, t.shape, architecture)]

    def importances(self, tensor: Tensor) -> Floats | None:
        return importances_of(self._imatrix, tensor.name, tensor.shape)

    def types_of(self, tensor: Tensor) -> list[TensorType]:
        """The types that a tensor may have: those that its rows fit, and that are not useless without importances."""
        for pattern, kind in self._overrides:
            if pattern.search(tensor.name):
                return [fitting(kind, tensor.name, tensor.shape)]
        width = tensor.shape[-1]
        known = self._types or [tensor_type(name) for name in (SMALL_BLOCKS if width % 256 else SUPER_BLOCKS)]
        blind = self.importances(tensor) is None
        able = [
            kind
            for kind in known
            if width % kind.block == 0
            and not (blind and (kind.name in NEEDS_IMPORTANCES or needs_importances(tensor.name, kind, "")))
        ]
        if self._types and able:
            return able
        return [*able, *([tensor_type("F16")] if tensor.type.name == "F32" else []), tensor.type]

    def encoders(self) -> list[tuple[TensorType, bool]]:
        """The formats, with importances or without, whose encoders are needed."""
        pairs = {(kind, self.importances(t) is not None) for t in self.tensors for kind in self.types_of(t)}
        return sorted(pairs, key=lambda pair: (pair[0].id, pair[1]))

    def measured(self, tensor: Tensor, encoder: Encoder) -> list[Candidate]:
        """The candidates of a tensor, with their errors on some of its rows."""
        groups = list(_sampled(tensor, self.importances(tensor)))
        power = sum(float((rows**2 * weights).sum(dtype=np.float64)) for _, rows, weights, _ in groups)
        found = []
        for kind in self.types_of(tensor):
            error = 0.0
            for data, rows, weights, given in groups if kind != tensor.type else ():
                again = decode(encoder.encode(Job(data, tensor.type, kind, given)), kind)
                error += float(((rows - again) ** 2 * weights).sum(dtype=np.float64))
            if np.isfinite(error):  # F16 has no room for some numbers
                found.append(Candidate(kind, kind.size(tensor.shape), error / power if power else 0.0))
        return found


def _sampled(tensor: Tensor, importances: Floats | None) -> Iterator[tuple[Any, Floats, Floats, Floats | None]]:
    """Rows from all over a tensor, expert by expert: as they are, as numbers, with weights of columns, importances."""
    width = tensor.shape[-1]
    rows = tensor.data.reshape(prod(tensor.shape[:-1]), -1)
    count = min(len(rows), max(FEWEST, SAMPLE // width))
    picked = np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64))
    experts = 1 if importances is None else len(importances)
    for expert in range(experts):
        mine = picked[picked * experts // len(rows) == expert]
        if len(mine):
            data = np.ascontiguousarray(rows[mine])
            given = None if importances is None else importances[expert]
            weights = np.ones(width, np.float32) if given is None else given
            yield data, decode(data, tensor.type), weights, given


def spend(
    candidates: Mapping[str, Sequence[Candidate]],
    budget: float,
    sensitivities: Mapping[str, float],
    told: Callable[[int], float] = float,
) -> dict[str, Candidate]:
    """A candidate for each tensor, of at most `budget` bytes together, with little damage.

    Raises RequestError if there is no such choice; `told` makes the figure in its message of the least bytes.
    """
    ladders = {name: _ladder(found) for name, found in candidates.items()}
    chosen = {name: ladder[0] for name, ladder in ladders.items()}
    left = budget - sum(candidate.nbytes for candidate in chosen.values())
    if left < 0:
        least = told(sum(candidate.nbytes for candidate in chosen.values()))
        raise RequestError(
            f"the target is too small: at least {least:.2f} are needed for the types there are", "target"
        )
    steps = []
    for name, ladder in ladders.items():
        for rung, (before, after) in enumerate(pairwise(ladder)):
            gain = sensitivities.get(name, 1.0) * (before.error - after.error) / (after.nbytes - before.nbytes)
            steps.append((-gain, name, rung + 1))
    stopped: set[str] = set()
    for _, name, rung in sorted(steps):  # gains fall along a ladder, so its rungs come in order
        after = ladders[name][rung]
        cost = after.nbytes - chosen[name].nbytes
        if name in stopped or cost > left:
            stopped.add(name)
            continue
        chosen[name], left = after, left - cost
    return chosen


def _ladder(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates worth their bytes, by size: the lower convex hull of errors over sizes."""
    hull: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.nbytes, c.error)):
        if hull and candidate.error >= hull[-1].error:
            continue
        while len(hull) > 1 and _slope(hull[-2], candidate) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(candidate)
    return hull


def _slope(a: Candidate, b: Candidate) -> float:
    return (b.error - a.error) / (b.nbytes - a.nbytes)
