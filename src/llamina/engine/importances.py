"""Importance matrices measured: a text goes through the model, and squares of what enters each matrix are added up.

As llama-imatrix does it: the text is cut into chunks, each a sequence of its own that begins with BOS where the model
wants it. The matrices of all layers are measured, experts each by the tokens that they are chosen for.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from llamina.engine.core import Core
from llamina.engine.engine import Engine
from llamina.engine.tracing import Traced, lay_out, seated, traced
from llamina.errors import RequestError
from llamina.ops import Step
from llamina.ops.reference import Array
from llamina.plan import Plan
from llamina.quantization import Imatrix

CHUNK = 512  # tokens, as in llama.cpp
PRODUCTS = ("linear", "head_linear", "expert_linear")
OUTPUTS = ("output.weight", "token_embd.weight")  # the second where it is the output matrix as well
Floats = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]


def imatrix(
    engine: Engine,
    text: str,
    *,
    chunk_size: int = CHUNK,
    chunks: int | None = None,
    skip: int = 0,
    output: bool = False,
    parse_special: bool = False,
    dataset: str = "",
    progress: Progress | None = None,
) -> Imatrix:
    """The importance matrix of a model, measured on a text.

    The text is cut into chunks of `chunk_size` tokens; a rest at its end is not used. `skip` chunks at its beginning
    are left out, and at most `chunks` are computed. With `output`, the output matrix is measured, too. `dataset` is the
    text's name in the file. `progress` is told the chunks that are done, and their number. Raises RequestError if the
    text has no chunk, the context is too small, or the backend is not the CPU.
    """
    tokens = engine.encode(text, parse_special=parse_special)
    cut = _chunks(engine, tokens, chunk_size, skip, chunks)
    collector = _Collector(engine, output)
    for done, chunk in enumerate(cut):
        if progress is not None:
            progress(done, len(cut))
        engine.stepper.call(collector.add, engine.core, chunk)
    if progress is not None:
        progress(len(cut), len(cut))
    return collector.found([dataset] if dataset else [], len(cut), chunk_size)


def _chunks(engine: Engine, tokens: Sequence[int], size: int, skip: int, most: int | None) -> list[list[int]]:
    for name, value, least in (("chunk_size", size, 2), ("skip", skip, 0), ("chunks", 1 if most is None else most, 1)):
        if value < least:
            raise RequestError(f"{name} is {value}: it must be at least {least}", name)
    if size > engine.context:
        raise RequestError(f"chunk_size is {size}: the context has {engine.context} tokens, load more", "chunk_size")
    starts = range(skip * size, len(tokens) - size + 1, size)[:most]
    if not starts:
        raise RequestError(
            f"the text has {len(tokens)} tokens, and chunks of {size} from number {skip + 1} on are asked for: give a "
            "longer text, or smaller chunks",
            "text",
        )
    tokenizer = engine.tokenizer
    bos = [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []
    return [[*bos, *tokens[start + len(bos) : start + size]] for start in starts]


class _Collector:
    """Sums of squares and counts by the names of matrices, while chunks are computed."""

    def __init__(self, engine: Engine, output: bool) -> None:
        self._program: Traced = traced(engine.runner.program)
        self._plan: Plan = engine.runner.plan
        self._output = output
        self._products = {index: step for index, step in enumerate(self._plan.steps) if self._is_measured(step)}
        self._sums: dict[str, Floats] = {}
        self._counts: dict[str, Floats] = {}

    def _is_measured(self, step: Step) -> bool:
        name = step.weights[0].name if step.op in PRODUCTS else ""
        return name.startswith("blk.") or (self._output and name in OUTPUTS)

    def add(self, core: Core, tokens: Sequence[int]) -> None:
        """Compute a chunk; between two steps of the engine."""
        core.settle()
        runner = core.runner
        most = runner.budget.outputs if self._output else runner.budget.tokens
        if runner.budget.whole and len(tokens) > most:
            raise RequestError(
                f"a chunk has {len(tokens)} tokens, and a step {most}: make chunks smaller", "chunk_size"
            )
        with seated(runner) as lease:
            for start in range(0, len(tokens), most):
                part = tokens[start : start + most]
                outputs = range(len(part)) if self._output else range(len(part) - 1, len(part))
                self._add_step(self._program.trace(lay_out(runner, lease, part, start, outputs), self._wanted()))

    def _wanted(self) -> set[int]:
        return {value.id for step in self._products.values() for value in step.inputs}

    def _add_step(self, trace: Iterator[tuple[int, dict[int, Array]]]) -> None:
        values: dict[int, Array] = {}
        last, uses, seen = max(self._products), self._plan.last_uses(), set()
        for index, outputs in trace:
            values.update(outputs)
            if (step := self._products.get(index)) is not None:
                name = step.weights[0].name.partition("[")[0]  # some read rows of one matrix in several products
                if (name, step.inputs[0].id) not in seen:
                    seen.add((name, step.inputs[0].id))
                    self._add_product(name, step, [values[value.id] for value in step.inputs])
            if index == last:
                return
            for spent in [value for value in values if uses.get(value, 0) <= index]:
                del values[spent]

    def _add_product(self, name: str, step: Step, inputs: list[Array]) -> None:
        x, shape = inputs[0], step.weights[0].shape
        if step.op == "expert_linear":
            sums, counts = _by_expert(x, inputs[1], shape[0])
        elif step.op == "head_linear":
            sums, counts = np.einsum("thi,thi->hi", x, x, dtype=np.float64).reshape(1, -1), np.array([len(x)])
        else:
            rows = x.reshape(-1, shape[-1])
            sums, counts = np.einsum("ti,ti->i", rows, rows, dtype=np.float64)[None], np.array([len(rows)])
        if not np.isfinite(sums).all():
            raise RequestError(f"what enters {name} is not finite: the model's file is damaged")
        self._sums[name] = self._sums.get(name, np.zeros(1)) + sums
        self._counts[name] = self._counts.get(name, np.zeros(1)) + counts

    def found(self, datasets: list[str], chunks: int, size: int) -> Imatrix:
        sums = {name: value.astype(np.float32) for name, value in self._sums.items()}
        counts = {name: value.astype(np.float32) for name, value in self._counts.items()}
        return Imatrix(sums, counts, datasets, chunks, size)


def _by_expert(x: Array, chosen: Array, experts: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Sums [experts, columns] and counts [experts]; x is [tokens, columns], or [tokens, used, columns]."""
    used = chosen.reshape(len(x), -1)
    sums, counts = np.zeros((experts, x.shape[-1])), np.bincount(used.reshape(-1), minlength=experts)
    for expert in np.flatnonzero(counts):
        token, place = np.nonzero(used == expert)
        rows = x[token] if x.ndim == 2 else x[token, place]
        sums[expert] = np.einsum("ti,ti->i", rows, rows, dtype=np.float64)
    return sums, counts
