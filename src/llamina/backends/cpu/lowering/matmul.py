"""Steps that multiply matrices: embeddings, linear layers and experts, with the activations quantized for them."""

from llamina.backends.cpu.lowering.emitter import Emitter, lowers
from llamina.backends.cpu.runtime.arena import Ref
from llamina.ops import Routing, Step, Value, Weight

PLAIN = ("F32", "F16", "BF16")  # multiplied with float activations, or with rounded ones where the CPU can
BY_256 = (  # multiplied with activations quantized by 256; all others by 32
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
    "IQ4_XS", "TQ1_0", "TQ2_0",
)  # fmt: skip
SCORINGS = {"softmax": 0, "sigmoid": 1, "softmax_selected": 2, "sigmoid_selected": 3}


@lowers("embed")
def embed(e: Emitter, step: Step) -> None:
    w, ids, out = step.weights[0], e.place(step.inputs[0]), e.output(step.outputs[0])
    e.emit(
        f"embed.{w.format.name}", count=e.count(step.inputs[0]), each=ids.inner, ids=ids.ref, w=e.matrix(w),
        out=out.ref, out_row=out.head if ids.inner > 1 else out.row, width=w.shape[-1],
    )  # fmt: skip


def activations(e: Emitter, value: Value, kind: str | None) -> tuple[Ref, int]:
    """The input as a kernel wants it: where, and how far apart its vectors are."""
    if kind is None:
        place = e.packed(value)
        return place.ref, 4 * place.inner if place.outer > 1 else place.row
    return e.once((kind, value.id), lambda: quantized(e, value, kind))


def rounding(name: str) -> str | None:
    """What activations become for weights of a format: blocks of 8-bit numbers, 16-bit floats, or nothing else."""
    if name in PLAIN:
        from llamina.backends.cpu.features import HAS_AMX_FP16, HAS_BF16  # which ask LLVM

        if name == "F16" and HAS_AMX_FP16:
            return "f16x2"
        return "bf16" if name == "BF16" and HAS_BF16 else None
    return "q256" if name in BY_256 else "q32"


def of_floats(e: Emitter, w: Weight) -> tuple[str, str] | None:
    """How float weights are multiplied if not as they are, and what activations become for it.

    Weights and activations may become 16-bit integers with a scale for each block of 32. BF16's do where no token is
    computed alone, so that no decode step must have the same bits, or its activations become two of its numbers.
    """
    name = w.format.name
    if name != "F16" and (name != "BF16" or e.decodes):
        return None
    from llamina.backends.cpu.features import HAS_AMX_BF16, HAS_AMX_FP16, HAS_VNNI  # which ask LLVM

    if HAS_AMX_BF16 and name == "BF16":
        return "split", "bf16x2"
    if HAS_AMX_FP16:
        return None
    return ("words", "i16") if HAS_VNNI and w.shape[-1] % 32 == 0 else None


def quantized(e: Emitter, value: Value, kind: str) -> tuple[Ref, int]:
    """Integers of 8 bits with a scale for each block of 256 or 32, of 16 bits (by 32), or as 16-bit floats."""
    x = e.place(value)
    n = x.inner
    sizes = {"q256": n + n // 256 * 36, "q32": n + n // 8 + n // 4, "i16": 2 * n + n // 8, "bf16": 64 * -(-n // 32)}
    sizes |= {"bf16x2": 2 * sizes["bf16"], "f16x2": 2 * sizes["bf16"] + 64}
    item = sizes[kind]
    ref = e.new(item * x.outer * e.rows(value) + 64)  # matrix registers read whole lines
    e.emit(
        f"quantize.{kind}", count=e.count(value), **x.reading(), out=ref, out_row=item, outer=x.outer, inner=n,
    )  # fmt: skip
    return ref, item


@lowers("linear")
def linear(e: Emitter, step: Step) -> None:
    w, value, out = step.weights[0], step.inputs[0], e.output(step.outputs[0])
    kernel, kind = f"linear.{w.format.name}", rounding(w.format.name)
    beside = {}
    if found := of_floats(e, w):
        kernel, kind = f"{kernel}.{found[0]}", found[1]
        beside = {"exponents": e.exponents(w)} if found[0] == "words" else {}
    x, item = activations(e, value, kind)
    e.emit(
        kernel, **beside, count=e.count(value), x=x, x_item=item, outer=e.place(value).outer,
        w=e.matrix(w), w_row=w.data.nbytes // w.shape[0], out=out.ref,
        out_item=4 * out.inner if out.outer > 1 else out.row, rows=w.shape[0], k=w.shape[1],
        scratch=Ref(e.scratch), scratch_size=e.scratch_size,
    )  # fmt: skip


@lowers("head_linear", "expert_linear")
def experts(e: Emitter, step: Step) -> None:
    w, value, out = step.weights[0], step.inputs[0], e.output(step.outputs[0])
    chosen = e.place(step.inputs[1]) if step.op == "expert_linear" else None
    x, item = activations(e, value, rounding(w.format.name))
    count, rows, k = w.shape
    e.emit(
        f"experts.{w.format.name}", count=e.count(value), x=x, x_item=item,
        share=1 if e.place(value).outer > 1 else out.outer, ids=chosen.ref if chosen else 0,
        ids_row=chosen.row if chosen else 0, outer=out.outer, w=e.matrix(w), w_expert=w.data.nbytes // count,
        experts=count, w_row=w.data.nbytes // (count * rows), out=out.ref, out_item=4 * out.inner, rows=rows, k=k,
        scratch=Ref(e.scratch), scratch_size=e.scratch_size,
    )  # fmt: skip


@lowers("expert_bias")
def expert_bias(e: Emitter, step: Step) -> None:
    x, ids, out = e.place(step.inputs[0]), e.place(step.inputs[1]), e.output(step.outputs[0])
    e.emit(
        "expert_bias", count=e.count(step.inputs[0]), **x.reading(), ids=ids.ref, ids_row=ids.row,
        bias=e.constant(step.weights[0]), **out.writing(), **out.size(),
    )  # fmt: skip


@lowers("route")
def route(e: Emitter, step: Step) -> None:
    params: Routing = step.attrs["params"]
    x, value = e.contiguous(step.inputs[0]), step.inputs[0]
    ids, weights = (e.output(v) for v in step.outputs)
    e.emit(
        "route", count=e.count(value), x=x.ref, x_row=x.row,
        bias=e.constant(step.weights[0]) if step.weights else 0, out_ids=ids.ref, out_weights=weights.ref,
        scratch=e.new(12 * x.inner * e.rows(value)), experts=x.inner, used=params.used,
        scoring=SCORINGS[params.scoring], normalize=int(params.normalize), groups=params.groups,
        groups_used=params.groups_used, share=params.share, factor=float(params.scale),
    )  # fmt: skip


@lowers("mix")
def mix(e: Emitter, step: Step) -> None:
    x, weights, out = e.place(step.inputs[0]), e.contiguous(step.inputs[1]), e.output(step.outputs[0])
    e.emit(
        "mix", count=e.count(step.inputs[0]), **x.reading(), weights=weights.ref, weights_row=weights.row,
        **out.writing(), used=x.outer, sums=out.outer, inner=out.inner,
    )  # fmt: skip
