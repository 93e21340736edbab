"""Attention over the KV cache, and the selection of what is attended to."""

import numpy as np

from llamina.backends.cpu.lowering.emitter import Emitter, lowers
from llamina.backends.cpu.runtime.arena import Argument, Place, Ref
from llamina.ops import Attention, Selection, State, Step, Value
from llamina.ops.batch import PAGE
from llamina.ops.rotation import alibi_slopes, hadamard_size


@lowers("attend")
def attend(e: Emitter, step: Step) -> None:
    params: Attention = step.attrs["params"]
    state, stores = step.states[0], e.states[step.states[0]]
    heads, key_dim, value_dim = state.shape
    size = rotation_size(e, state)
    write_cache(e, state, step.inputs[1:], size)
    q, out = rotated(e, step.inputs[0], size), e.output(step.outputs[0])
    found = e.like(out, step.outputs[0]) if size else out
    chosen = [e.place(value) for value in step.inputs[1 + len(stores) :]]
    kernel = "attend_latent" if state.kind == "latent" else "attend"
    e.emit(
        f"{kernel}.{e.capacity.kv_type}", spans=e.batch.counts.ctypes.data + 16,
        starts=e.fixed(e.batch.starts), q=q.ref, q_row=q.row, q_head=q.head,
        keys=stores[0], values=stores[-1], **positions(e, state), **found.writing(), heads=q.outer, kv_heads=heads,
        key_dim=key_dim, value_dim=value_dim, window=params.behind, chunk=params.chunk, ahead=params.ahead,
        until=e.fixed(e.batch.until) if step.attrs.get("until") or params.bounded else 0,
        since=e.fixed(e.batch.since) if params.bounded else 0,
        slopes=e.fixed(alibi_slopes(q.outer, params.alibi)),
        sinks=e.constant(step.weights[0]) if step.weights and not params.distances else 0, **biases(e, step),
        scratch=Ref(e.scratch), scratch_size=e.scratch_size,
        shared_partials=Ref(e.partials), partials_size=e.partials_size,
        selected=chosen[0].ref if chosen else 0, selected_row=chosen[0].row if chosen else 0,
        selected_head=chosen[0].head if chosen and chosen[0].outer > 1 else 0, block=params.block,
        scale=float(params.scale), cap=float(params.softcap),
    )  # fmt: skip
    if size:
        rotate(e, step.outputs[0], found, out, size)


def biases(e: Emitter, step: Step) -> dict[str, Argument]:
    """Each head's biases by distance, and room behind them, for the scores of whole pages are biased."""
    params: Attention = step.attrs["params"]
    if not params.distances:
        return {"biases": 0, "biases_row": 0, "distances": 0}
    w = step.weights[0]
    table = e.once(("biases", w.name), lambda: np.pad(w.floats(), ((0, 0), (0, PAGE))))
    return {"biases": e.fixed(table), "biases_row": table.strides[0], "distances": params.distances}


@lowers("select")
def select(e: Emitter, step: Step) -> None:
    params: Selection = step.attrs["params"]
    state = step.states[0]
    size = rotation_size(e, state)
    write_cache(e, state, step.inputs[1:2], size)
    q, out = rotated(e, step.inputs[0], size), e.output(step.outputs[0])
    weights = e.place(step.inputs[2]) if len(step.inputs) > 2 else None
    e.emit(
        f"select.{e.capacity.kv_type}", count=e.count(step.inputs[0]), q=q.ref, q_row=q.row, q_head=q.head,
        weights=weights.ref if weights else 0, weights_row=weights.row if weights else 0,
        keys=e.states[state][0], **positions(e, state), **out.writing(), heads=q.outer, groups=out.outer,
        dim=q.inner, words=params.words, top=params.top, block=params.block, local=params.local,
        whole=int(params.whole), scratch=Ref(e.scratch), scratch_size=e.scratch_size,
    )  # fmt: skip


def write_cache(e: Emitter, state: State, values: tuple[Value, ...], size: int) -> None:
    """Write each token's keys and values to the pages of its sequence."""
    for kind, value, store in zip(("keys", "values"), values, e.states[state], strict=False):
        x = rotated(e, value, size)
        e.emit(
            f"write_{kind}.{e.capacity.kv_type}", count=e.count(value), **x.reading(), **positions(e, state),
            out=store, heads=state.shape[0], dim=x.inner,
        )  # fmt: skip


def positions(e: Emitter, state: State) -> dict[str, Argument]:
    """Each token's position and sequence, and where the pages of each sequence are."""
    tables = e.batch.window_tables if e.capacity.unit(state) == "window" else e.batch.tables
    return {
        "positions": e.fixed(e.batch.positions),
        "sequences": e.fixed(e.batch.sequences),
        "tables": e.fixed(tables),
        "tables_row": tables.strides[0],
    }


# ---- the Hadamard rotation of a cache of four bits, which then loses less ----------------------------------------


def rotation_size(e: Emitter, state: State) -> int:
    """How many elements are rotated together; 0: none are."""
    return hadamard_size(*state.shape[1:]) if e.capacity.kv_type == "q4_0" else 0


def rotated(e: Emitter, value: Value, size: int) -> Place:
    """Where a value is, rotated if there is a size."""
    x = e.place(value)
    if not size:
        return x
    rotate(e, value, x, out := e.like(x, value), size)
    return out


def rotate(e: Emitter, value: Value, x: Place, out: Place, size: int) -> None:
    e.emit("hadamard", count=e.count(value), **x.reading(), **out.writing(), **out.size(), size=size)
