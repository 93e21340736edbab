"""Bytes of weights that a plan reads, and its multiply-adds with weights, counted step by step."""

from math import prod

from llamina.ops import Step
from llamina.plan import Plan


def weight_bytes(plan: Plan, sequences: int = 1) -> float:
    """Bytes of weights that a decoding step of `sequences` sequences reads, without the KV cache.

    Of an embedding only the tokens' rows are read, of experts only those that are chosen: for several sequences
    the expected number if each chooses at random.
    """
    return sum(_share(step, sequences) * sum(w.data.nbytes for w in step.weights) for step in plan.steps)


def _share(step: Step, sequences: int) -> float:
    """The part of a step's weights that is read."""
    if step.op == "embed":
        return min(1.0, sequences / step.weights[0].shape[0])
    if step.op in ("expert_linear", "expert_bias"):
        used = step.inputs[1].shape[-1] / step.weights[0].shape[0]
        return 1 - (1 - min(used, 1.0)) ** sequences
    return 1.0


def multiplications(plan: Plan, tokens: int, outputs: int = 1) -> int:
    """Multiply-adds with weights for a prompt of `tokens`, of which `outputs` get logits, without attention."""
    counts = {"tokens": tokens, "outputs": outputs}
    return sum(counts[step.inputs[0].rows] * _products(step) for step in plan.steps if step.op.endswith("linear"))


def _products(step: Step) -> int:
    """Multiply-adds for one row."""
    shape = step.weights[0].shape
    if step.op == "expert_linear":
        return step.inputs[1].shape[-1] * prod(shape[1:])
    if step.op == "head_linear":
        return prod(shape)
    return prod(shape) * prod(step.inputs[0].shape[:-1])
