"""Steps with recurrent states: convolutions, state-space scans and linear attention."""

import numpy as np

from llamina.backends.cpu.lowering.emitter import Emitter, lowers
from llamina.backends.cpu.runtime.arena import Argument, Place
from llamina.ops import Ngrams, Step
from llamina.quant import decode


def recurrence(e: Emitter, step: Step) -> dict[str, Argument]:
    """The state, the bytes of one slot of it, and which tokens and slot belong to each sequence."""
    state = e.states[step.states[0]][0]
    return {
        "states": state,
        "slot_size": state.buffer.nbytes // e.capacity.slots,
        "sequences": e.batch.counts.ctypes.data + 16,
        "starts": e.fixed(e.batch.starts),
        "positions": e.fixed(e.batch.positions),
        "slots": e.fixed(e.batch.slots),
    }


@lowers("convolve")
def convolve(e: Emitter, step: Step) -> None:
    x, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    w = step.weights[0]
    by_tap = np.ascontiguousarray(decode(w.data, w.format, w.shape).T)
    e.emit(
        "convolve", **recurrence(e, step), x=x.ref, x_row=x.row, w=e.fixed(by_tap),
        bias=e.constant(step.weights[1]) if len(step.weights) > 1 else 0,
        out=out.ref, out_row=out.row, channels=w.shape[0], taps=w.shape[1], apart=step.attrs["apart"],
    )  # fmt: skip


@lowers("ngrams")
def ngrams(e: Emitter, step: Step) -> None:
    params: Ngrams = step.attrs["params"]
    tokens, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    multipliers, sizes, offsets = (
        e.fixed(np.array(numbers, np.uint64)) for numbers in (params.multipliers, params.sizes, params.offsets)
    )
    e.emit(
        "ngrams", **recurrence(e, step), x=tokens.ref, multipliers=multipliers, sizes=sizes, offsets=offsets,
        out=out.ref, out_row=out.row, past=len(params.multipliers) - 1, tables=len(params.sizes),
        end_token=params.end,
    )  # fmt: skip


@lowers("pool")
def pool(e: Emitter, step: Step) -> None:
    x, gate = (e.place(value) for value in step.inputs)
    w, out = step.weights[0], e.output(step.outputs[0])
    e.emit(
        "pool", **recurrence(e, step), x=x.ref, x_row=x.row, gate=gate.ref, gate_row=gate.row,
        w=e.constant(w), out=out.ref, out_row=out.row, channels=x.inner, taps=w.shape[0],
    )  # fmt: skip


@lowers("scan")
def scan(e: Emitter, step: Step) -> None:
    x, dt, b, c = (e.place(v) for v in step.inputs)
    a, out = step.weights[0], e.output(step.outputs[0])
    e.emit(
        "scan", **recurrence(e, step), x=x.ref, x_row=x.row, dt=dt.ref, dt_row=dt.row, a=e.constant(a),
        b=b.ref, b_row=b.row, c=c.ref, c_row=c.row, out=out.ref, out_row=out.row, channels=x.inner, n=b.inner,
    )  # fmt: skip


@lowers("linear_attend")
def linear_attend(e: Emitter, step: Step) -> None:
    q, k, v, *others = (e.place(value) for value in step.inputs)
    beta, out = others[-1] if step.attrs["delta"] else None, e.output(step.outputs[0])
    if step.weights:
        width = step.weights[0].shape[1]
        decay = Place(e.constant(step.weights[0]), 0, 4 * width, v.outer, width)
    else:
        decay = others[0]
    e.emit(
        "linear_attend", **recurrence(e, step), q=q.ref, q_row=q.row, q_head=q.head, k=k.ref, k_row=k.row,
        k_head=k.head, v=v.ref, v_row=v.row, v_head=v.head, decay=decay.ref, decay_row=decay.row,
        decay_head=decay.head, decay_step=4 if decay.inner > 1 else 0, beta=beta.ref if beta else 0,
        beta_row=beta.row if beta else 0, **out.writing(), heads=v.outer, groups=k.outer, key_dim=k.inner,
        dim=v.inner, tiled=int(step.attrs["tiled"]),
    )  # fmt: skip
