"""Launches of what chooses experts and adds up their answers."""

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.lowering.calls import Calls, lowers, reading, writing
from llamina.ops import Routing, Step


@lowers("route")
def _route(calls: Calls, step: Step) -> None:
    params: Routing = step.attrs["params"]
    value = step.inputs[0]
    x, (ids, weights) = calls.contiguous(value), (calls.output(v) for v in step.outputs)
    each = x.width // params.groups
    calls.emit(
        "routing.route", (calls.rows(value), 1, 1), 1 if x.width <= 256 else 4, count=calls.count(value),
        x=x.ref, x_row=x.row, bias=calls.constant(step.weights[0]) if step.weights else None, ids=ids.ref,
        weights=weights.ref, used=params.used, groups=params.groups, groups_used=params.groups_used, each=each,
        share=params.share, factor=float(params.scale), SCORING=params.scoring, NORMALIZE=int(params.normalize),
        GROUPED=int(params.groups > 1), GROUPS=power(params.groups), EACH=power(each), USED=power(params.used),
    )  # fmt: skip


@lowers("mix")
def _mix(calls: Calls, step: Step) -> None:
    value = step.inputs[0]
    x, weights, out = calls.place(value), calls.contiguous(step.inputs[1]), calls.output(step.outputs[0])
    block = min(1024, power(out.inner))
    calls.emit(
        "routing.mix", (calls.rows(value), out.outer, -(-out.inner // block)), count=calls.count(value), **reading(x),
        weights=weights.ref, weights_row=weights.row, **writing(out), used=x.outer, sums=out.outer, inner=out.inner,
        BLOCK=block,
    )  # fmt: skip


@lowers("expert_bias")
def _expert_bias(calls: Calls, step: Step) -> None:
    x, ids = calls.place(step.inputs[0]), calls.place(step.inputs[1])
    out = calls.output(step.outputs[0])
    calls.emit(
        "elementwise.expert_bias", calls.elements(step.outputs[0], out), **calls.spread(step.outputs[0], out),
        **reading(x), ids=ids.ref, ids_row=ids.row, bias=calls.constant(step.weights[0]), **writing(out),
    )  # fmt: skip
