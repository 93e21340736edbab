"""Launches of the operations that go along a sequence with a state."""

import numpy as np

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.device import Argument
from llamina.backends.cuda.lowering.calls import Calls, lowers, writing
from llamina.backends.cuda.memory import Place, Ref
from llamina.ops import Ngrams, Step
from llamina.quant import decode


def _state(calls: Calls, step: Step) -> Ref:
    return calls.shared.states.refs[step.states[0]][0]


def _along(calls: Calls, step: Step) -> dict[str, Argument]:
    """Where in the batch each sequence stands, and its state."""
    refs = calls.inputs.refs
    return {"state": _state(calls, step), **{name: refs[name] for name in ("starts", "positions", "slots")}}


def _by_token(calls: Calls, step: Step) -> dict[str, Argument]:
    return {
        **_along(calls, step),
        "count": calls.count(step.inputs[0]),
        "sequences": calls.inputs.refs["sequences"],
    }


def _keep_recent(calls: Calls, step: Step, x: Place, column: int = 0) -> None:
    """The last rows of x into the state, behind the launch that reads what was there."""
    past, columns = step.states[0].shape
    block = min(1024, power(x.inner))
    calls.emit(
        "recurrent.keep_recent", (calls.bucket.sequences, -(-x.inner // block), 1), **_along(calls, step),
        count=calls.sequences, x=x.ref, x_row=x.row, past=past, columns=columns, column=column, width=x.inner,
        TOKENS=int(x.ref.type == "i32"), BLOCK=block,
    )  # fmt: skip


@lowers("convolve")
def _convolve(calls: Calls, step: Step) -> None:
    x, out, w = calls.place(step.inputs[0]), calls.output(step.outputs[0]), step.weights[0]
    by_tap = np.ascontiguousarray(decode(w.data, w.format, w.shape).T)
    block = min(512, power(x.inner))
    calls.emit(
        "recurrent.convolve", (calls.bucket.tokens, -(-x.inner // block), 1), **_by_token(calls, step), x=x.ref,
        x_row=x.row, w=calls.array(by_tap), bias=calls.constant(step.weights[1]) if len(step.weights) > 1 else None,
        out=out.ref, out_row=out.row, channels=w.shape[0], taps=w.shape[1], apart=step.attrs["apart"], BLOCK=block,
    )  # fmt: skip
    _keep_recent(calls, step, x)


@lowers("pool")
def _pool(calls: Calls, step: Step) -> None:
    (x, gate), out, w = (calls.place(v) for v in step.inputs), calls.output(step.outputs[0]), step.weights[0]
    block = min(512, power(x.inner))
    calls.emit(
        "recurrent.pool", (calls.bucket.tokens, -(-x.inner // block), 1), **_by_token(calls, step), x=x.ref,
        x_row=x.row, gate=gate.ref, gate_row=gate.row, w=calls.constant(w), out=out.ref, out_row=out.row,
        channels=x.inner, taps=w.shape[0], BLOCK=block,
    )  # fmt: skip
    _keep_recent(calls, step, x)
    _keep_recent(calls, step, gate, x.inner)


@lowers("ngrams")
def _ngrams(calls: Calls, step: Step) -> None:
    params: Ngrams = step.attrs["params"]
    tokens, out = calls.place(step.inputs[0]), calls.output(step.outputs[0])
    past, tables = len(params.multipliers) - 1, len(params.sizes)
    multipliers, sizes, offsets = (
        calls.array(np.array(numbers, np.uint64)) for numbers in (params.multipliers, params.sizes, params.offsets)
    )
    calls.emit(
        "recurrent.ngrams", (calls.bucket.tokens, 1, 1), 1, **_by_token(calls, step), tokens=tokens.ref,
        multipliers=multipliers, sizes=sizes, offsets=offsets, out=out.ref, out_row=out.row, past=past, tables=tables,
        each=tables // past, end=params.end, BLOCK=power(tables),
    )  # fmt: skip
    _keep_recent(calls, step, tokens)


@lowers("scan")
def _scan(calls: Calls, step: Step) -> None:
    (x, dt, b, c), out = (calls.place(v) for v in step.inputs), calls.output(step.outputs[0])
    block = 32
    calls.emit(
        "recurrent.scan", (calls.bucket.sequences, -(-x.inner // block), 1), **_along(calls, step),
        count=calls.sequences, x=x.ref, x_row=x.row, dt=dt.ref, dt_row=dt.row, a=calls.constant(step.weights[0]),
        b=b.ref, b_row=b.row, c=c.ref, c_row=c.row, out=out.ref, out_row=out.row, channels=x.inner, n=b.inner,
        BLOCK=block, WIDTH=power(b.inner),
    )  # fmt: skip


@lowers("linear_attend")
def _linear_attend(calls: Calls, step: Step) -> None:
    q, k, v, *others = (calls.place(value) for value in step.inputs)
    beta, out = others[-1] if step.attrs["delta"] else None, calls.output(step.outputs[0])
    if step.weights:
        width = step.weights[0].shape[1]
        decay = Place(calls.constant(step.weights[0]), 0, width, v.outer, width)
    else:
        decay = others[0]
    block = min(32, power(v.inner))
    calls.emit(
        "recurrent.linear_attend", (calls.bucket.sequences, v.outer, -(-v.inner // block)), **_along(calls, step),
        count=calls.sequences, q=q.ref, q_row=q.row, q_head=q.head, k=k.ref, k_row=k.row, k_head=k.head, v=v.ref,
        v_row=v.row, v_head=v.head, decay=decay.ref, decay_row=decay.row, decay_head=decay.head,
        decay_step=1 if decay.inner > 1 else 0, beta=beta.ref if beta else None, beta_row=beta.row if beta else 0,
        **writing(out), heads=v.outer, groups=k.outer, key=k.inner, dim=v.inner, TILED=int(step.attrs["tiled"]),
        KEY=power(k.inner), BLOCK=block,
    )  # fmt: skip
