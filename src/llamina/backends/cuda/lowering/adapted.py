"""Launches of what adapters add."""

from llamina.backends.cuda.adapters import Table
from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.lowering.calls import Calls, lowers, writing
from llamina.ops import Step


@lowers("adapt")
def _adapt(calls: Calls, step: Step) -> None:
    """In place, for nobody else reads what the matrix alone made; only logits have a place of their own."""
    source, before, *chosen = step.inputs
    out, refs, op = step.outputs[0], calls.inputs.refs, step.attrs["op"]
    calls.alias(out, calls.place(before))
    place, x = calls.place(out), calls.place(source)
    name = step.attrs["matrix"]
    if name not in calls.tables:
        calls.tables[name] = Table(calls.shared.device)
    ids = calls.place(chosen[0]) if chosen else None
    block = min(512, power(place.inner))
    calls.emit(
        "adapt.adapt", (calls.rows(out), place.outer, -(-place.inner // block)), count=calls.count(out), x=x.ref,
        x_row=x.row, x_head=x.head if x.outer > 1 else 0, ids=ids.ref if ids else None, ids_row=ids.row if ids else 0,
        **writing(place), table=calls.tables[name].ref, wanted=None if out.rows == "tokens" else refs["outputs"],
        sequences=refs["sequences"], positions=refs["positions"], starts=refs["adapter_starts"],
        slots=refs["adapter_slots"], scales=refs["adapter_scales"], since=refs["adapter_positions"],
        inner=place.inner, k=x.inner, EMBED=int(op == "embed"), BLOCK=block, BLOCK_K=min(256, power(x.inner)),
    )  # fmt: skip
