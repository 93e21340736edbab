"""LoRA adapters: the calls that add to the products of a matrix what adapters make of its inputs."""

from llamina.backends.cpu.lowering.emitter import Emitter, lowers
from llamina.backends.cpu.runtime.adapters import AdapterTable
from llamina.backends.cpu.runtime.arena import Argument
from llamina.ops import Step


@lowers("adapt")
def adapt(e: Emitter, step: Step) -> None:
    """In place, for nobody else reads what the matrix alone made; only logits have a place of their own."""
    source, before, *chosen = step.inputs
    out, batch = step.outputs[0], e.batch
    if e.has(out):
        e.copy(out, e.place(before), e.place(out))
    else:
        e.put(out, e.place(before))
    place, x = e.place(out), e.place(source)
    op = step.attrs["op"]
    table = e.adapters.setdefault(step.attrs["matrix"], AdapterTable(op))
    shared: dict[str, Argument] = {
        "count": e.count(out), "sequences": e.fixed(batch.sequences), "positions": e.fixed(batch.positions),
        "starts": e.fixed(batch.adapter_starts), "slots": e.fixed(batch.adapter_slots),
        "scales": e.fixed(batch.adapter_scales), "since": e.fixed(batch.adapter_positions),
        "table": e.fixed(table.rows),
    }  # fmt: skip
    if op == "embed":
        e.emit("adapt_embed", **shared, ids=x.ref, out=place.ref, out_row=place.row, inner=place.inner)
        return
    ids = e.place(chosen[0]) if chosen else None
    e.emit(
        "adapt", **shared, rows=0 if out.rows == "tokens" else e.fixed(batch.outputs), x=x.ref, x_row=x.row,
        x_head=x.head if x.outer > 1 else 0, ids=ids.ref if ids else 0, ids_row=ids.row if ids else 0,
        **place.writing(), **place.size(), k=x.inner,
    )  # fmt: skip
