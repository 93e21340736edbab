"""From a plan's steps to native steps: which kernel, with which arguments, in which memory."""

from collections.abc import Callable
from typing import Any

import numpy as np

from llamina.backends.base import Capacity
from llamina.backends.cpu.adapters import Table
from llamina.backends.cpu.layout import CHUNK, MOST_ROWS, partial_bytes, shared_bytes
from llamina.backends.cpu.memory import Buffer, Place, Ref, split_shape
from llamina.backends.cpu.native import Argument, reading, size_of, writing
from llamina.backends.cpu.states import States
from llamina.backends.cpu.tiling import scratch_bytes
from llamina.ops import Routing, State, Step, Value, Weight
from llamina.ops.batch import PAGE, Batch
from llamina.ops.rotation import frequencies
from llamina.plan import Plan
from llamina.quant import decode

PLAIN = ("F32", "F16", "BF16")  # multiplied with float activations
BY_256 = (  # multiplied with activations quantized by 256; all others by 32
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
    "IQ4_XS", "TQ1_0", "TQ2_0",
)  # fmt: skip
SCORINGS = {"softmax": 0, "sigmoid": 1, "softmax_selected": 2, "sigmoid_selected": 3}


class Lowering(States):
    """Walks the plan once; afterwards `native` holds the calls and `buffers` the arena's tenants."""

    def __init__(
        self, plan: Plan, batch: Batch, capacity: Capacity, threads: int, states: dict[State, list[Ref]]
    ) -> None:
        super().__init__(batch)
        self.outputs: list[list[tuple[Value, Place]]] = []  # of each step, where they are when it has run
        self._capacity, self._states = capacity, states
        self._quantized: dict[tuple[int, str], tuple[Ref, int]] = {}
        self._rope_tables: dict[Any, Ref] = {}
        self.tables: dict[str, Table] = {}  # of adapted matrices, by name
        self.scratch = Buffer(0, own=True)  # a part for each thread: nothing to clash over, so no size
        self.scratch_size = self._scratch_size(plan)
        self.partials_size = self._partials_size(plan)
        self.partials = Buffer(self.partials_size * threads, own=True)
        self.logits = Buffer(4 * len(batch.outputs) * plan.vocab, own=True)
        self._inputs(plan)
        for self._step, step in enumerate(plan.steps):
            self._lower(step, plan.logits)

    def _scratch_size(self, plan: Plan) -> int:
        """Room for a panel of tiles and, where there are experts, for items sorted by expert."""
        weights = [step.weights[0] for step in plan.steps if step.op.endswith("linear")]
        widest = max((w.shape[-1] for w in weights), default=1)
        experts = max((w.shape[0] for w in weights if len(w.shape) == 3), default=0)
        items = max((step.inputs[1].size for step in plan.steps if step.op == "expert_linear"), default=1)
        items = max(items, *(w.shape[0] for w in weights if len(w.shape) == 3), 1)
        dim = max((step.states[0].shape[2] for step in plan.steps if step.op == "attend"), default=0)
        attention = MOST_ROWS * partial_bytes(dim) + 4 * CHUNK * PAGE * dim
        scores = max((4 * step.attrs["how"].context + 64 for step in plan.steps if step.op == "select"), default=0)
        numbers = (experts + 2 + items * len(self._batch.tokens)) if experts else 0
        return max(attention, scores, scratch_bytes(widest, numbers))

    def _partials_size(self, plan: Plan) -> int:
        """Room for what came of each chunk of the longest context, for a few tokens of one key head."""
        context = self._batch.tables.shape[1] * PAGE
        attends = [step for step in plan.steps if step.op == "attend"]
        rows = [min(4 * step.inputs[0].shape[0] // step.states[0].shape[0], MOST_ROWS) for step in attends]
        dims = [step.states[0].shape[2] for step in attends]
        return max((shared_bytes(n, dim, context) for n, dim in zip(rows, dims, strict=True)), default=0)

    def _inputs(self, plan: Plan) -> None:
        for value, array in ((plan.tokens, self._batch.tokens), (plan.positions, self._batch.positions)):
            self._places[value.id] = Place(self._fixed(array), 4, 4, 1, 1)

    def _lower(self, step: Step, logits: Value) -> None:
        method: Callable[[Step], None] = getattr(self, f"_{step.op}")
        for value in step.outputs:
            if value is logits:
                self._places[value.id] = Place(Ref(self.logits), 4 * value.size, 0, 1, value.size)
        method(step)
        self.outputs.append([(value, self._places[value.id]) for value in step.outputs])

    # ---- elementwise -------------------------------------------------------------------------------------

    def _unary(self, step: Step, kernel: str, constant: float = 0.0) -> None:
        x, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        self._emit(
            kernel,
            count=self._count(step.inputs[0]),
            **reading(x),
            **writing(out),
            **size_of(out),
            constant=float(constant),
        )

    def _binary(self, step: Step, kernel: str) -> None:
        x, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        y = step.weights[0] if step.weights else step.inputs[1]
        outer, inner = split_shape((1, *y.shape)[-2:] if len(y.shape) < 2 else y.shape)
        if isinstance(y, Weight):
            ref, row, head = self._constant(y), 0, 4 * inner
        else:
            place = self._place(y)
            ref, row, head = place.ref, place.row, place.head
        self._emit(
            kernel, count=self._count(step.inputs[0]), **reading(x),
            y=ref, y_row=row, y_head=head if outer > 1 else 0, y_step=4 if inner > 1 or out.inner == 1 else 0,
            **writing(out), **size_of(out),
        )  # fmt: skip

    def _add(self, step: Step) -> None:
        self._binary(step, "add")

    def _mul(self, step: Step) -> None:
        self._binary(step, "mul")

    def _div(self, step: Step) -> None:
        self._binary(step, "div")

    def _gated(self, step: Step) -> None:
        self._binary(step, f"gated.{step.attrs['kind']}")

    def _scale(self, step: Step) -> None:
        self._unary(step, "scale", step.attrs["factor"])

    def _softcap(self, step: Step) -> None:
        self._unary(step, "softcap", step.attrs["cap"])

    def _softmax(self, step: Step) -> None:
        self._unary(step, "softmax")

    def _at_most(self, step: Step) -> None:
        self._unary(step, "at_most", step.attrs["limit"])

    def _at_least(self, step: Step) -> None:
        self._unary(step, "at_least", step.attrs["limit"])

    def _temper(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        self._emit(
            "temper", count=self._count(step.inputs[0]), positions=self._fixed(self._batch.positions), **reading(x),
            **writing(out), **size_of(out), length=step.attrs["length"], factor=float(step.attrs["factor"]),
            offset=float(step.attrs["offset"]),
        )  # fmt: skip

    def _activate(self, step: Step) -> None:
        self._unary(step, f"activate.{step.attrs['kind']}")

    def _pick(self, step: Step) -> None:
        x, out = self._contiguous(step.inputs[0]), self._output(step.outputs[0])
        self._emit(
            "pick", count=self._count(step.outputs[0]), rows=self._fixed(self._batch.outputs),
            x=x.ref, x_row=x.row, out=out.ref, out_row=out.row, inner=out.outer * out.inner,
        )  # fmt: skip

    # ---- layout ------------------------------------------------------------------------------------------

    def _reshape(self, step: Step) -> None:
        self._places[step.outputs[0].id] = self._contiguous(step.inputs[0]).shaped(step.outputs[0].shape)

    def _slice(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), step.outputs[0]
        self._places[out.id] = x.sliced(step.attrs["start"], out.shape[-1])

    def _concat(self, step: Step) -> None:
        out, at = self._output(step.outputs[0]), 0
        for value in step.inputs:
            x = self._place(value)
            everywhere = Place(x.ref, x.row, x.head if x.outer == out.outer else 0, out.outer, x.inner)
            self._copy(value, everywhere, out.sliced(at, x.inner))
            at += x.inner

    def _pad(self, step: Step) -> None:
        value, x, out = step.inputs[0], self._place(step.inputs[0]), self._output(step.outputs[0])
        before = out.inner - x.inner
        self._emit(
            "fill", count=self._count(value), out=out.ref, out_row=out.row, inner=before,
            constant=float(step.attrs["fill"]),
        )  # fmt: skip
        self._copy(value, x, out.sliced(before, x.inner))

    # ---- norms and rotations -----------------------------------------------------------------------------

    def _norm(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        refs = [self._constant(w) for w in step.weights]
        wide = bool(step.weights) and x.outer > 1 and int(np.prod(step.weights[0].shape)) == x.outer * x.inner
        self._emit(
            step.op, count=self._count(step.inputs[0]), **reading(x), **writing(out), **size_of(out),
            w=refs[0] if refs else 0, b=refs[1] if len(refs) > 1 else 0, w_head=4 * x.inner if wide else 0,
            eps=float(step.attrs["eps"]),
        )  # fmt: skip

    _rms_norm = _layer_norm = _norm

    def _rope(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        rope, pairs = step.attrs["rope"], step.attrs["rope"].dims // 2
        self._emit(
            "rope", count=self._count(step.inputs[0]), **reading(x), table=self._rope_table(step), **writing(out),
            **size_of(out), pairs=pairs, near=1 if rope.neox else 2, far=pairs if rope.neox else 1,
        )  # fmt: skip

    def _rope_table(self, step: Step) -> Ref:
        """Computed once per step of the engine, for all layers that turn alike."""
        rope, factors = step.attrs["rope"], step.weights[0] if step.weights else None
        key = rope, factors.name if factors else None
        if key not in self._rope_tables:
            turns = frequencies(rope, decode(factors.data, factors.format, factors.shape) if factors else None)
            table = self._new(4 * rope.dims * len(self._batch.tokens))
            self._emit(
                "rope_table", count=self._count(step.inputs[0]), positions=self._fixed(self._batch.positions),
                frequencies=self._fixed(turns), out=table, pairs=rope.dims // 2, magnitude=float(rope.magnitude),
            )  # fmt: skip
            self._rope_tables[key] = table
        return self._rope_tables[key]

    # ---- matrices ----------------------------------------------------------------------------------------

    def _embed(self, step: Step) -> None:
        w, ids, out = step.weights[0], self._place(step.inputs[0]), self._output(step.outputs[0])
        self._emit(
            f"embed.{w.format.name}", count=self._count(step.inputs[0]), each=ids.inner, ids=ids.ref, w=self._bytes(w),
            out=out.ref, out_row=out.head if ids.inner > 1 else out.row, width=w.shape[-1],
        )  # fmt: skip

    def _activations(self, value: Value, w: Weight) -> tuple[Ref, int]:
        """The input as the weight's kernel wants it: where, and how far apart its vectors are."""
        if w.format.name in PLAIN:
            place = self._contiguous(value)
            return place.ref, 4 * place.inner if place.outer > 1 else place.row
        kind = "q256" if w.format.name in BY_256 else "q32"
        if (value.id, kind) not in self._quantized:
            x = self._place(value)
            n = x.inner
            item = n + n // 256 * 36 if kind == "q256" else n + n // 8 + n // 4
            ref = self._new(item * x.outer * self._rows(value) + 64)  # matrix registers read whole lines
            self._emit(
                f"quantize.{kind}", count=self._count(value), **reading(x), out=ref, out_row=item,
                outer=x.outer, inner=n,
            )  # fmt: skip
            self._quantized[value.id, kind] = ref, item
        return self._quantized[value.id, kind]

    def _linear(self, step: Step) -> None:
        w, value, out = step.weights[0], step.inputs[0], self._output(step.outputs[0])
        x, item = self._activations(value, w)
        self._emit(
            f"linear.{w.format.name}", count=self._count(value), x=x, x_item=item, outer=self._place(value).outer,
            w=self._bytes(w), w_row=w.data.nbytes // w.shape[0], out=out.ref,
            out_item=4 * out.inner if out.outer > 1 else out.row, rows=w.shape[0], k=w.shape[1],
            scratch=Ref(self.scratch), scratch_size=self.scratch_size,
        )  # fmt: skip

    def _experts(self, step: Step, ids: Ref | int, ids_row: int) -> None:
        w, value, out = step.weights[0], step.inputs[0], self._output(step.outputs[0])
        x, item = self._activations(value, w)
        count, rows, k = w.shape
        self._emit(
            f"experts.{w.format.name}", count=self._count(value), x=x, x_item=item,
            share=1 if self._place(value).outer > 1 else out.outer, ids=ids, ids_row=ids_row, outer=out.outer,
            w=self._bytes(w), w_expert=w.data.nbytes // count, experts=count, w_row=w.data.nbytes // (count * rows),
            out=out.ref, out_item=4 * out.inner, rows=rows, k=k,
            scratch=Ref(self.scratch), scratch_size=self.scratch_size,
        )  # fmt: skip

    def _head_linear(self, step: Step) -> None:
        self._experts(step, 0, 0)

    def _expert_linear(self, step: Step) -> None:
        ids = self._place(step.inputs[1])
        self._experts(step, ids.ref, ids.row)

    def _expert_bias(self, step: Step) -> None:
        x, ids, out = self._place(step.inputs[0]), self._place(step.inputs[1]), self._output(step.outputs[0])
        self._emit(
            "expert_bias", count=self._count(step.inputs[0]), **reading(x), ids=ids.ref, ids_row=ids.row,
            bias=self._constant(step.weights[0]), **writing(out), **size_of(out),
        )  # fmt: skip

    def _adapt(self, step: Step) -> None:
        """In place, for nobody else reads what the matrix alone made; only logits have a place of their own."""
        source, before, *chosen = step.inputs
        out, batch = step.outputs[0], self._batch
        place = self._place(before)
        if out.id in self._places:
            self._copy(out, place, self._places[out.id])
        place = self._places.setdefault(out.id, place)
        op, tokens = step.attrs["op"], out.rows == "tokens"
        table = self.tables.setdefault(step.attrs["matrix"], Table(op))
        shared: dict[str, Argument] = {
            "count": self._count(out), "sequences": self._fixed(batch.sequences),
            "positions": self._fixed(batch.positions), "starts": self._fixed(batch.adapter_starts),
            "slots": self._fixed(batch.adapter_slots), "scales": self._fixed(batch.adapter_scales),
            "since": self._fixed(batch.adapter_positions), "table": self._fixed(table.rows),
        }  # fmt: skip
        x = self._place(source)
        if op == "embed":
            self._emit("adapt_embed", **shared, ids=x.ref, out=place.ref, out_row=place.row, inner=place.inner)
            return
        ids = self._place(chosen[0]) if chosen else None
        self._emit(
            "adapt", **shared, rows=0 if tokens else self._fixed(batch.outputs), x=x.ref, x_row=x.row,
            x_head=x.head if x.outer > 1 else 0, ids=ids.ref if ids else 0, ids_row=ids.row if ids else 0,
            **writing(place), **size_of(place), k=x.inner,
        )  # fmt: skip

    def _route(self, step: Step) -> None:
        how: Routing = step.attrs["how"]
        x, value = self._contiguous(step.inputs[0]), step.inputs[0]
        ids, weights = (self._output(v) for v in step.outputs)
        self._emit(
            "route", count=self._count(value), x=x.ref, x_row=x.row,
            bias=self._constant(step.weights[0]) if step.weights else 0, out_ids=ids.ref, out_weights=weights.ref,
            out_scratch=self._new(12 * x.inner * self._rows(value)), experts=x.inner, used=how.used,
            scoring=SCORINGS[how.scoring], normalize=int(how.normalize), groups=how.groups,
            groups_used=how.groups_used, share=how.share, factor=float(how.scale),
        )  # fmt: skip

    def _mix(self, step: Step) -> None:
        x, weights, out = self._place(step.inputs[0]), self._contiguous(step.inputs[1]), self._output(step.outputs[0])
        self._emit(
            "mix", count=self._count(step.inputs[0]), **reading(x), weights=weights.ref, weights_row=weights.row,
            **writing(out), used=x.outer, sums=out.outer, inner=out.inner,
        )  # fmt: skip

    def _sinkhorn(self, step: Step) -> None:
        x, out = self._contiguous(step.inputs[0]), self._output(step.outputs[0])
        self._emit(
            "sinkhorn", count=self._count(step.inputs[0]), x=x.ref, x_row=x.row, out=out.ref, out_row=out.row,
            n=x.inner, rounds=step.attrs["rounds"], eps=float(step.attrs["eps"]),
        )  # fmt: skip
