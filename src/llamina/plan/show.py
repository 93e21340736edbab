"""A plan as text, one line per step."""

from collections.abc import Iterator

from llamina.ops import Step, Value
from llamina.plan.record import Plan


def show(plan: Plan) -> Iterator[str]:
    """Lines such as ` 12 linear Q4_K  blk.0.attn_q  %9[2048] → %10[2048]`."""
    for index, step in enumerate(plan.steps):
        yield f"{index:5} {describe(step)}"


def describe(step: Step) -> str:
    """Operation, format, name, operands and settings of a step."""
    form = step.weights[0].format.name if step.weights else ""
    inputs = " ".join(_value(v) for v in step.inputs)
    outputs = " ".join(_value(v) for v in step.outputs)
    settings = " ".join(f"{k}={v}" for k, v in step.attrs.items())
    return f"{step.op:13} {form:8} {step.name:28} {inputs} → {outputs}  {settings}".rstrip()


def _value(v: Value) -> str:
    return f"%{v.id}{list(v.shape)}"
