"""How much memory of their own threads need for the steps of a plan."""

from llamina.backends.cpu.layout import CHUNK, MOST_ROWS, partial_bytes, shared_bytes
from llamina.backends.cpu.tiling import scratch_bytes
from llamina.ops.batch import PAGE, Batch
from llamina.plan import Plan


def scratch_size(plan: Plan, batch: Batch) -> int:
    """Bytes for each thread: tiles of a GEMM, items sorted by expert, rows of attention, or scores of a selection."""
    weights = [step.weights[0] for step in plan.steps if step.op.endswith("linear")]
    widest = max((w.shape[-1] for w in weights), default=1)
    experts = max((w.shape[0] for w in weights if len(w.shape) == 3), default=0)
    items = max((step.inputs[1].size for step in plan.steps if step.op == "expert_linear"), default=1)
    items = max(items, *(w.shape[0] for w in weights if len(w.shape) == 3), 1)
    shapes = [step.states[0].shape for step in plan.steps if step.op == "attend"]
    key_dim, value_dim = (max((shape[i] + 7 & ~7 for shape in shapes), default=0) for i in (1, 2))
    attention = MOST_ROWS * partial_bytes(value_dim) + 4 * CHUNK * PAGE * (key_dim + value_dim) + 64
    scores = max((4 * step.attrs["params"].context + 64 for step in plan.steps if step.op == "select"), default=0)
    numbers = (experts + 2 + items * len(batch.tokens)) if experts else 0
    return max(attention, scores, scratch_bytes(widest, numbers))


def partials_size(plan: Plan, batch: Batch) -> int:
    """Bytes for each thread: what came of each chunk of the longest context, for a few tokens of one key head."""
    context = batch.tables.shape[1] * PAGE
    attends = [step for step in plan.steps if step.op == "attend"]
    rows = [min(4 * step.inputs[0].shape[0] // step.states[0].shape[0], MOST_ROWS) for step in attends]
    dims = [step.states[0].shape[2] for step in attends]
    return max((shared_bytes(n, dim, context) for n, dim in zip(rows, dims, strict=True)), default=0)
