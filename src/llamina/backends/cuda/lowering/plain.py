"""Launches of the operations that look at nothing but their operands: elementwise, norms, rotations, layouts."""

from dataclasses import replace
from math import prod

import numpy as np

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.device import Argument, Constant
from llamina.backends.cuda.lowering import small_batch
from llamina.backends.cuda.lowering.calls import Calls, Norming, Stop, Turning, block_of, lowers, reading, writing
from llamina.backends.cuda.lowering.matrices import prepared_for
from llamina.backends.cuda.memory import Place, Ref, split_shape
from llamina.ops import Step, Weight
from llamina.ops.rotation import frequencies
from llamina.quant import decode

ADDED = 16  # tokens of which norms add up the parts of a product
CONSTANTS = {"scale": "factor", "softcap": "cap", "at_most": "limit", "at_least": "limit"}


@lowers("activate", *CONSTANTS)
def _unary(calls: Calls, step: Step) -> None:
    x, out = calls.place(step.inputs[0]), calls.output(step.outputs[0])
    kind = step.attrs["kind"] if step.op == "activate" else step.op
    calls.emit(
        "elementwise.unary", calls.elements(step.outputs[0], out), **calls.spread(step.outputs[0], out), **reading(x),
        **writing(out), constant=float(step.attrs.get(CONSTANTS.get(step.op, ""), 0.0)), KIND=kind, EARLY=calls.early,
    )  # fmt: skip


@lowers("gated")
def _gated(calls: Calls, step: Step) -> None:
    """Right into what the next product reads, if nobody else reads it."""
    value, others = step.outputs[0], [i for i in calls.readers.of(step.outputs[0]) if not _multiplies(calls, i)]
    found = prepared_for(calls, value) if not others else None
    if not found:
        _binary(calls, step)
        return
    (wanted, room), (x, y) = found, (calls.place(v) for v in step.inputs)
    block = min(1024, power(wanted.padded)) if wanted.kind == "q8" else power(wanted.padded)
    warps = 4 if block < 4096 else 8 if block < 8192 else 16
    calls.emit(
        "endings.gated", (calls.rows(value), -(-wanted.padded // block), 1), warps,
        count=calls.count(value), x=x.ref, x_row=x.row, y=y.ref, y_row=y.row, **room, inner=x.inner,
        GATE=step.attrs["kind"], KIND=wanted.kind, PADDED=wanted.padded, BLOCK=block, EARLY=calls.early,
    )  # fmt: skip


def _multiplies(calls: Calls, index: int) -> bool:
    return calls.readers.steps[index].op == "linear"


@lowers("add", "mul", "div")
def _binary(calls: Calls, step: Step) -> None:
    x, out = calls.place(step.inputs[0]), calls.output(step.outputs[0])
    y = step.weights[0] if step.weights else step.inputs[1]
    outer, inner = split_shape(y.shape)
    if isinstance(y, Weight):
        ref, row, head = calls.constant(y), 0, inner
    else:
        place = calls.place(y)
        ref, row, head = place.ref, place.row, place.head
    calls.emit(
        "elementwise.binary", calls.elements(step.outputs[0], out), **calls.spread(step.outputs[0], out), **reading(x),
        y=ref, y_row=row, y_head=head if outer > 1 else 0, y_step=1 if inner > 1 or out.inner == 1 else 0,
        **writing(out), KIND=step.attrs["kind"] if step.op == "gated" else step.op, EARLY=calls.early,
    )  # fmt: skip


@lowers("temper")
def _temper(calls: Calls, step: Step) -> None:
    x, out = calls.place(step.inputs[0]), calls.output(step.outputs[0])
    calls.emit(
        "elementwise.temper", calls.elements(step.outputs[0], out), **calls.spread(step.outputs[0], out), **reading(x),
        **writing(out), positions=calls.inputs.refs["positions"], length=int(step.attrs["length"]),
        factor=float(step.attrs["factor"]), offset=float(step.attrs["offset"]),
    )  # fmt: skip


@lowers("softmax")
def _softmax(calls: Calls, step: Step) -> None:
    value = step.inputs[0]
    x, out = calls.place(value), calls.output(step.outputs[0])
    calls.emit(
        "norm.softmax", (calls.rows(value), x.outer, 1), count=calls.count(value), **reading(x), **writing(out),
        inner=x.inner, BLOCK=min(4096, power(x.inner)),
    )  # fmt: skip


@lowers("sinkhorn")
def _sinkhorn(calls: Calls, step: Step) -> None:
    value = step.inputs[0]
    x, out = calls.place(value), calls.output(step.outputs[0])
    calls.emit(
        "norm.sinkhorn", (calls.rows(value), 1, 1), 1, count=calls.count(value), **reading(x), **writing(out),
        n=x.inner, rounds=int(step.attrs["rounds"]), eps=float(step.attrs["eps"]), BLOCK=power(x.inner),
    )  # fmt: skip


@lowers("rms_norm", "layer_norm")
def _norm(calls: Calls, step: Step) -> None:
    value = step.inputs[0]
    x, refs = calls.place(value), [calls.constant(w) for w in step.weights]
    if step.op == "rms_norm" and len(refs) == 1 and small_batch.postpones(calls, step.outputs[0]):
        calls.norming[step.outputs[0].id] = Norming(x, refs[0], float(step.attrs["eps"]))
        return
    if found := prepared_for(calls, step.outputs[0]):
        wanted, room = found
        out = calls.output(step.outputs[0]) if wanted.others else None
        combined = _combined(calls, x)
        calls.emit(
            "endings.combine_and_normalize" if combined else "endings.normalize", (calls.rows(value), 1, 1), 8,
            **(combined or {"x_row": x.row}), x=x.ref, count=calls.count(value), out=out.ref if out else None,
            out_row=out.row if out else 0, w=refs[0] if refs else None, bias=refs[1] if len(refs) > 1 else None,
            **room, inner=x.inner, eps=float(step.attrs["eps"]), CENTRE=int(step.op == "layer_norm"),
            KIND=wanted.kind, PADDED=wanted.padded, BLOCK=power(wanted.padded), EARLY=calls.early,
        )  # fmt: skip
        return
    out = calls.output(step.outputs[0])
    wide = bool(step.weights) and x.outer > 1 and prod(step.weights[0].shape) == x.width
    calls.emit(
        "norm.normalize", (calls.rows(value), x.outer, 1), count=calls.count(value), **reading(x), **writing(out),
        w=refs[0] if refs else None, bias=refs[1] if len(refs) > 1 else None, w_head=x.inner if wide else 0,
        inner=x.inner, eps=float(step.attrs["eps"]), CENTRE=int(step.op == "layer_norm"),
        BLOCK=min(4096, power(x.inner)),
    )  # fmt: skip


def _combined(calls: Calls, x: Place) -> dict[str, Argument | Constant] | None:
    """What the last launch was given, if it adds the parts of a product that is x up: the norm does that then."""
    fits = calls.readers.fuse and calls.bucket.tokens <= ADDED  # a program takes all parts of a token
    last = calls.launches[-1] if fits and calls.launches else None
    if last is None or last.kernel.name != "gemm.combine" or last.args["out"] != x.ref or last.args["N"] != x.inner:
        return None
    if x.row != x.inner or dict(last.kernel.constants)["GROUPED"]:
        return None
    calls.launches.pop()
    args = last.args
    return {
        "parts": args["parts"], "powers": args["xe"], "gain": args["gain"], "tokens": args["count"],
        "product_bias": args.get("bias"), "add": args.get("add"), "SPLIT": dict(last.kernel.constants)["SPLIT"],
    }  # fmt: skip


@lowers("rope")
def _rope(calls: Calls, step: Step) -> None:
    """What attention alone reads is rotated by it."""
    value, rope, pairs = step.outputs[0], step.attrs["rope"], step.attrs["rope"].dims // 2
    angles: dict[str, Argument] = {"angles": _angles(calls, step), "pairs": pairs}
    angles |= {"near": 1, "far": pairs} if rope.neox else {"near": 2, "far": 1}
    calls.turning[value.id] = Turning(calls.place(step.inputs[0]), angles)
    reader = calls.readers.only(value)
    if reader is None or calls.readers.steps[reader].op != "attend":
        calls.turn(value)


def _angles(calls: Calls, step: Step) -> Ref:
    """Cosines and sines of the step's positions, computed once for all layers that turn alike."""
    rope, factors = step.attrs["rope"], step.weights[0] if step.weights else None
    several = bool(step.attrs.get("rotary"))  # each pair follows one of M-RoPE's positions
    key = rope, factors.name if factors else None, several
    if key not in calls.made:
        turns = frequencies(rope, decode(factors.data, factors.format, factors.shape) if factors else None)
        table, value, pairs = calls.new(rope.dims * calls.bucket.tokens), step.inputs[0], rope.dims // 2
        calls.emit(
            "rope.angles", (calls.rows(value), 1, 1), count=calls.count(value),
            positions=calls.inputs.refs["rotary" if several else "positions"], frequencies=calls.array(turns),
            axes=calls.array(np.array(rope.axes, np.int32)) if several else None,
            axis_row=calls.inputs.most_tokens if several else None, out=table, pairs=pairs,
            magnitude=float(rope.magnitude), BLOCK=power(pairs), EARLY=calls.early,
        )  # fmt: skip
        calls.made[key] = table
    return calls.made[key]


@lowers("given")
def _given(calls: Calls, step: Step) -> None:
    x, rows, out = calls.place(step.inputs[0]), calls.place(step.inputs[1]), calls.output(step.outputs[0])
    calls.emit(
        "elementwise.given", calls.elements(step.outputs[0], out), count=calls.count(step.outputs[0]), x=x.ref,
        x_row=x.row, rows=rows.ref, rows_row=rows.row, where=calls.inputs.refs["given"], out=out.ref, out_row=out.row,
        inner=out.inner, BLOCK=block_of(out),
    )  # fmt: skip


@lowers("pick")
def _pick(calls: Calls, step: Step) -> None:
    x, grouped = calls.place(step.inputs[0]), "group" in step.attrs
    if calls.bucket.tokens == 1 and not grouped:  # which is the one that is wanted, if any is
        calls.alias(step.outputs[0], x)
        return
    out = calls.output(step.outputs[0])
    if grouped:
        x = replace(x, head=x.row, outer=step.attrs["group"])
    calls.emit(
        "elementwise.pick", calls.elements(step.outputs[0], out), **calls.spread(step.outputs[0], out), **reading(x),
        **writing(out), wanted=calls.inputs.refs["outputs"], EARLY=calls.early,
    )  # fmt: skip


@lowers("all_reduce")
def _all_reduce(calls: Calls, step: Step) -> None:
    """A copy, in whose place the sum comes between two graphs."""
    value, out = step.outputs[0], calls.output(step.outputs[0])
    calls.copy(value, calls.place(step.inputs[0]), out)
    calls.stops.append(Stop(len(calls.launches), value, out, step.attrs["link"]))


@lowers("reshape")
def _reshape(calls: Calls, step: Step) -> None:
    calls.alias(step.outputs[0], calls.contiguous(step.inputs[0]).shaped(step.outputs[0].shape))


@lowers("slice")
def _slice(calls: Calls, step: Step) -> None:
    x, out = calls.place(step.inputs[0]), step.outputs[0]
    calls.alias(out, x.sliced(step.attrs["start"], out.shape[-1]))


@lowers("concat")
def _concat(calls: Calls, step: Step) -> None:
    out, at = calls.output(step.outputs[0]), 0
    for value in step.inputs:
        x = calls.place(value)
        everywhere = Place(x.ref, x.row, x.head if x.outer == out.outer else 0, out.outer, x.inner)
        calls.copy(value, everywhere, out.sliced(at, x.inner))
        at += x.inner


@lowers("pad")
def _pad(calls: Calls, step: Step) -> None:
    value, x, out = step.inputs[0], calls.place(step.inputs[0]), calls.output(step.outputs[0])
    calls.emit(
        "elementwise.pad", (calls.rows(value), -(-out.inner // block_of(out)), 1), count=calls.count(value), x=x.ref,
        x_row=x.row, out=out.ref, out_row=out.row, before=out.inner - x.inner, inner=out.inner,
        fill=float(step.attrs["fill"]), BLOCK=block_of(out),
    )  # fmt: skip
