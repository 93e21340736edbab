"""The CPU's plan beside the NumPy reference, step by step: the debugger for new models and kernels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from llamina.backends.reference import ReferenceBackend
from llamina.engine.engine import Engine
from llamina.engine.tracing import lay_out, seated, traced
from llamina.errors import RequestError
from llamina.ops import Step
from llamina.ops.batch import PAGE, Batch
from llamina.ops.reference import Array

EXACT = 1e-6
ROUNDED = 5e-3  # activations are rounded to 8 bits before they meet weights in blocks
PLAIN = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a step's outputs are from the reference's, given the same inputs."""

    index: int
    step: Step
    error: float  # normalised mean squared error; of whole numbers, the share that differs
    tolerance: float

    @property
    def over(self) -> bool:
        return not self.error <= self.tolerance  # NaN is over


def compare(engine: Engine, tokens: Sequence[int], tolerance: float | None = None) -> Iterator[Difference]:
    """Every step of the plan on `tokens`, in order. The reference gets what the CPU computed before.

    Without `tolerance`, a step with weights in blocks may differ by `ROUNDED` and any other by `EXACT`.
    """
    program, plan = traced(engine.runner.program), engine.runner.plan
    with _laid_out(engine, tokens) as batch:
        reference = ReferenceBackend().compile(plan, batch, engine.runner.capacity).reference
        n, last = batch.n_tokens, plan.last_uses()
        values: dict[int, Array] = {plan.tokens.id: batch.tokens[:n], plan.positions.id: batch.positions[:n]}
        for index, outputs in program.trace(batch):
            step = plan.steps[index]
            expected = reference.apply(step, [values[v.id] for v in step.inputs], batch)
            error = max(distance(outputs[v.id], e) for v, e in zip(step.outputs, expected, strict=True))
            limit = tolerance if tolerance is not None else ROUNDED if _rounds(step) else EXACT
            yield Difference(index, step, error, limit)
            values.update(outputs)
            for spent in [v for v in values if last.get(v, 0) <= index]:
                del values[spent]


def end_to_end(engine: Engine, tokens: Sequence[int]) -> float:
    """How far the CPU's logits are from those of the reference on its own."""
    with _laid_out(engine, tokens) as batch:
        expected = ReferenceBackend().compile(engine.runner.plan, batch, engine.runner.capacity).launch(batch).result()
        return distance(engine.runner.program.launch(batch).result(), expected)


def distance(found: Array, expected: Array) -> float:
    """Σ(found - expected)² / Σ expected²; of whole numbers, the share that differs."""
    if found.dtype.kind == "i":
        return float(np.mean(found != expected))
    wanted = expected.astype(np.float64)
    error, power = np.sum(np.square(found - wanted)), np.sum(np.square(wanted))
    return float(error / power) if power else float(error)


def _rounds(step: Step) -> bool:
    return step.op.endswith("linear") and step.weights[0].format.name not in PLAIN


@contextmanager
def _laid_out(engine: Engine, tokens: Sequence[int]) -> Iterator[Batch]:
    """All tokens as one sequence in pages of its own, with logits wanted of all that there is room for."""
    room = min(engine.runner.budget.tokens, engine.runner.context, PAGE * engine.runner.pages.free)
    if not 0 < len(tokens) <= room:
        raise RequestError(f"{len(tokens)} tokens were given: from 1 to {room} can be compared", "prompt")
    with seated(engine.runner) as lease:
        outputs = range(len(tokens))[-engine.runner.budget.outputs :]
        yield lay_out(engine.runner, lease, tokens, 0, outputs)
