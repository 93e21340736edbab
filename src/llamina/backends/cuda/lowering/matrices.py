"""Launches of what reads matrices: products and embeddings."""

import numpy as np
import numpy.typing as npt

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.lowering.calls import Calls, lowers, reading, writing
from llamina.backends.cuda.memory import Place, Ref
from llamina.ops import Step, Weight
from llamina.quant import decode

EXACT = ("F32", "BF16", "F64")  # formats whose numbers float16 cannot hold


def _matrix(calls: Calls, w: Weight) -> Ref:
    """A matrix on the device: float32 where the file's numbers need it, otherwise float16."""
    if w.format.name in EXACT:
        return calls.constant(w)

    def halves() -> npt.NDArray[np.float16]:
        return decode(w.data, w.format, w.shape).astype(np.float16)

    return calls.shared.hold(("fp16", w.name, w.shape, w.data.ctypes.data), halves)


@lowers("embed")
def _embed(calls: Calls, step: Step) -> None:
    w, ids, out = step.weights[0], calls.place(step.inputs[0]), calls.output(step.outputs[0])
    block = min(1024, power(w.shape[1]))
    calls.emit(
        "products.embed", (calls.rows(step.inputs[0]) * ids.inner, -(-w.shape[1] // block), 1),
        count=calls.count(step.inputs[0]), ids=ids.ref, table=_matrix(calls, w), out=out.ref,
        out_item=out.head if ids.inner > 1 else out.row, each=ids.inner, width=w.shape[1], BLOCK=block,
    )  # fmt: skip


@lowers("linear")
def _linear(calls: Calls, step: Step) -> None:
    w, value, out = step.weights[0], step.inputs[0], calls.output(step.outputs[0])
    x, (n, k) = calls.place(value), w.shape
    items = calls.rows(value) * x.outer
    block_m = min(64, max(16, power(items)))
    calls.emit(
        "products.linear", (-(-n // 64), -(-items // block_m), 1), count=calls.count(value), **reading(x),
        w=_matrix(calls, w), **writing(out), outer=x.outer, n=n, k=k, BLOCK_M=block_m, BLOCK_N=64, BLOCK_K=64,
    )  # fmt: skip


@lowers("head_linear", "expert_linear")
def _experts(calls: Calls, step: Step) -> None:
    w, value, out = step.weights[0], step.inputs[0], calls.output(step.outputs[0])
    x, (_, n, k) = calls.place(value), w.shape
    ids = calls.place(step.inputs[1]) if step.op == "expert_linear" else None
    same = Place(x.ref, x.row, x.head if x.outer > 1 else 0, x.outer, x.inner)  # one vector for all experts
    calls.emit(
        "products.experts", (-(-n // 64), calls.rows(value) * out.outer, 1), count=calls.count(value),
        **reading(same), ids=ids.ref if ids else None, ids_row=ids.row if ids else 0, w=_matrix(calls, w),
        **writing(out), outer=out.outer, n=n, k=k, BLOCK_N=64, BLOCK_K=64,
    )  # fmt: skip
