"""Steps that go through values element by element, norms and RoPE, and those that only look at values differently."""

import numpy as np

from llamina.backends.cpu.lowering.emitter import Emitter, Stop, lowers
from llamina.backends.cpu.runtime.arena import Argument, Place, Ref, split_shape
from llamina.ops import Step, Weight
from llamina.ops.rotation import frequencies
from llamina.quant import decode


def unary(e: Emitter, step: Step, kernel: str, constant: float = 0.0) -> None:
    x, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    count = e.count(step.inputs[0])
    e.emit(kernel, count=count, **x.reading(), **out.writing(), **out.size(), constant=float(constant))


def binary(e: Emitter, step: Step, kernel: str) -> None:
    x, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    y = step.weights[0] if step.weights else step.inputs[1]
    outer, inner = split_shape((1, *y.shape)[-2:] if len(y.shape) < 2 else y.shape)
    if isinstance(y, Weight):
        ref, row, head = e.constant(y), 0, 4 * inner
    else:
        place = e.place(y)
        ref, row, head = place.ref, place.row, place.head
    e.emit(
        kernel, count=e.count(step.inputs[0]), **x.reading(),
        y=ref, y_row=row, y_head=head if outer > 1 else 0, y_step=4 if inner > 1 or out.inner == 1 else 0,
        **out.writing(), **out.size(),
    )  # fmt: skip


@lowers("add", "mul", "div")
def arithmetic(e: Emitter, step: Step) -> None:
    binary(e, step, step.op)


@lowers("gated")
def gated(e: Emitter, step: Step) -> None:
    binary(e, step, f"gated.{step.attrs['kind']}")


@lowers("activate")
def activate(e: Emitter, step: Step) -> None:
    unary(e, step, f"activate.{step.attrs['kind']}")


@lowers("scale")
def scale(e: Emitter, step: Step) -> None:
    unary(e, step, "scale", step.attrs["factor"])


@lowers("softcap")
def softcap(e: Emitter, step: Step) -> None:
    unary(e, step, "softcap", step.attrs["cap"])


@lowers("softmax")
def softmax(e: Emitter, step: Step) -> None:
    unary(e, step, "softmax")


@lowers("at_most", "at_least")
def clamp(e: Emitter, step: Step) -> None:
    unary(e, step, step.op, step.attrs["limit"])


@lowers("temper")
def temper(e: Emitter, step: Step) -> None:
    x, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    e.emit(
        "temper", count=e.count(step.inputs[0]), positions=e.fixed(e.batch.positions), **x.reading(),
        **out.writing(), **out.size(), length=step.attrs["length"], factor=float(step.attrs["factor"]),
        offset=float(step.attrs["offset"]),
    )  # fmt: skip


@lowers("given")
def given(e: Emitter, step: Step) -> None:
    x, rows, out = e.contiguous(step.inputs[0]), e.place(step.inputs[1]), e.output(step.outputs[0])
    e.emit(
        "given", count=e.count(step.inputs[0]), where=e.fixed(e.batch.given), x=x.ref, x_row=x.row,
        rows=rows.ref, rows_row=rows.row, out=out.ref, out_row=out.row, inner=out.outer * out.inner,
    )  # fmt: skip


@lowers("pick")
def pick(e: Emitter, step: Step) -> None:
    x, out = e.contiguous(step.inputs[0]), e.output(step.outputs[0])
    if "group" in step.attrs and x.row != 4 * x.inner:  # rows of a group are copied as one
        e.copy(step.inputs[0], x, packed := e.like(x, step.inputs[0]))
        x = packed
    e.emit(
        "pick", count=e.count(step.outputs[0]), rows=e.fixed(e.batch.outputs), x=x.ref, x_row=x.row,
        out=out.ref, out_row=out.row, inner=out.outer * out.inner,
    )  # fmt: skip


@lowers("all_reduce")
def all_reduce(e: Emitter, step: Step) -> None:
    """A copy, in whose place the sum comes between two walks of the threads."""
    value, out = step.outputs[0], e.output(step.outputs[0])
    e.copy(value, e.place(step.inputs[0]), out)
    e.stops.append(Stop(len(e.calls), value, out, step.attrs["link"]))


@lowers("sinkhorn")
def sinkhorn(e: Emitter, step: Step) -> None:
    x, out = e.contiguous(step.inputs[0]), e.output(step.outputs[0])
    e.emit(
        "sinkhorn", count=e.count(step.inputs[0]), x=x.ref, x_row=x.row, out=out.ref, out_row=out.row,
        n=x.inner, rounds=step.attrs["rounds"], eps=float(step.attrs["eps"]),
    )  # fmt: skip


# ---- layout -------------------------------------------------------------------------------------------------


@lowers("reshape")
def reshape(e: Emitter, step: Step) -> None:
    e.alias(step.outputs[0], e.contiguous(step.inputs[0]).shaped(step.outputs[0].shape))


@lowers("slice")
def slice_(e: Emitter, step: Step) -> None:
    e.alias(step.outputs[0], e.place(step.inputs[0]).sliced(step.attrs["start"], step.outputs[0].shape[-1]))


@lowers("concat")
def concat(e: Emitter, step: Step) -> None:
    out, at = e.output(step.outputs[0]), 0
    for value in step.inputs:
        x = e.place(value)
        everywhere = Place(x.ref, x.row, x.head if x.outer == out.outer else 0, out.outer, x.inner)
        e.copy(value, everywhere, out.sliced(at, x.inner))
        at += x.inner


@lowers("pad")
def pad(e: Emitter, step: Step) -> None:
    value, x, out = step.inputs[0], e.place(step.inputs[0]), e.output(step.outputs[0])
    before = out.inner - x.inner
    constant = float(step.attrs["fill"])
    e.emit("fill", count=e.count(value), out=out.ref, out_row=out.row, inner=before, constant=constant)
    e.copy(value, x, out.sliced(before, x.inner))


# ---- norms and RoPE -----------------------------------------------------------------------------------------


@lowers("rms_norm", "layer_norm")
def norm(e: Emitter, step: Step) -> None:
    x, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    refs = [e.constant(w) for w in step.weights]
    wide = bool(step.weights) and x.outer > 1 and int(np.prod(step.weights[0].shape)) == x.outer * x.inner
    e.emit(
        step.op, count=e.count(step.inputs[0]), **x.reading(), **out.writing(), **out.size(),
        w=refs[0] if refs else 0, b=refs[1] if len(refs) > 1 else 0, w_head=4 * x.inner if wide else 0,
        eps=float(step.attrs["eps"]),
    )  # fmt: skip


@lowers("rope")
def rope(e: Emitter, step: Step) -> None:
    x, out = e.place(step.inputs[0]), e.output(step.outputs[0])
    params, factors = step.attrs["rope"], step.weights[0] if step.weights else None
    table = e.once(("rope", params, factors.name if factors else None), lambda: rope_table(e, step))
    pairs, neox = params.dims // 2, params.neox
    e.emit(
        "rope", count=e.count(step.inputs[0]), **x.reading(), table=table, **out.writing(), **out.size(),
        pairs=pairs, stride=1 if neox else 2, gap=pairs if neox else 1,
    )  # fmt: skip


def rope_table(e: Emitter, step: Step) -> Ref:
    """Cosines and sines of all positions, computed once for all layers that rotate alike."""
    params, factors = step.attrs["rope"], step.weights[0] if step.weights else None
    angles = frequencies(params, decode(factors.data, factors.format, factors.shape) if factors else None)
    table = e.new(4 * params.dims * len(e.batch.tokens))
    written: dict[str, Argument] = {"out": table, "pairs": params.dims // 2, "magnitude": float(params.magnitude)}
    count, turns = e.count(step.inputs[0]), e.fixed(angles)
    if not step.attrs.get("rotary"):
        e.emit("rope_table", count=count, positions=e.fixed(e.batch.positions), frequencies=turns, **written)
        return table
    positions, axes = e.batch.rotary, np.array(params.axes, np.int32)
    e.emit(
        "rotary_table", count=count, positions=e.fixed(positions), axes=e.fixed(axes), axis_size=positions.strides[0],
        frequencies=turns, **written,
    )  # fmt: skip
    return table
