"""Native calls of the steps that keep something from one step of the engine to the next."""

import numpy as np

from llamina.backends.base import Capacity
from llamina.backends.cpu.calls import Calls
from llamina.backends.cpu.memory import Buffer, Place, Ref
from llamina.backends.cpu.native import Argument, reading, size_of, writing
from llamina.ops import Attention, Ngrams, Selection, State, Step, Value
from llamina.ops.rotation import alibi_slopes, turned
from llamina.quant import decode


class States(Calls):
    """Attention and recurrences. `scratch` has a part for each thread; `partials` are what threads tell each other."""

    _capacity: Capacity
    _states: dict[State, list[Ref]]
    scratch: Buffer
    scratch_size: int
    partials: Buffer
    partials_size: int

    def _keep(self, state: State, values: tuple[Value, ...], turn: int) -> None:
        """Each token's rows into the pages of its sequence."""
        for kind, value, store in zip(("keys", "values"), values, self._states[state], strict=False):
            x = self._turned(value, turn)
            self._emit(
                f"keep_{kind}.{self._capacity.kv_type}", count=self._count(value), **reading(x), **self._where(state),
                out=store, heads=state.shape[0], dim=x.inner,
            )  # fmt: skip

    def _turn_of(self, state: State) -> int:
        """The size of the Hadamard matrices that turn what goes into a cache of four bits, which then lose less."""
        return turned(*state.shape[1:]) if self._capacity.kv_type == "q4_0" else 0

    def _turned(self, value: Value, size: int) -> Place:
        x = self._place(value)
        if not size:
            return x
        out = self._like(x, value)
        self._turn(value, x, out, size)
        return out

    def _turn(self, value: Value, x: Place, out: Place, size: int) -> None:
        self._emit("turn", count=self._count(value), **reading(x), **writing(out), **size_of(out), size=size)

    def _attend(self, step: Step) -> None:
        how: Attention = step.attrs["how"]
        state, stores = step.states[0], self._states[step.states[0]]
        heads, key_dim, value_dim = state.shape
        turn = self._turn_of(state)
        self._keep(state, step.inputs[1:], turn)
        q, out = self._turned(step.inputs[0], turn), self._output(step.outputs[0])
        found = self._like(out, step.outputs[0]) if turn else out
        chosen = [self._place(value) for value in step.inputs[1 + len(stores) :]]
        kernel = "attend_latent" if state.kind == "latent" else "attend"
        self._emit(
            f"{kernel}.{self._capacity.kv_type}", spans=self._batch.counts.ctypes.data + 16,
            starts=self._fixed(self._batch.starts), q=q.ref, q_row=q.row, q_head=q.head,
            keys=stores[0], values=stores[-1], **self._where(state), **writing(found), heads=q.outer, kv_heads=heads,
            key_dim=key_dim, value_dim=value_dim, window=how.behind, chunk=how.chunk, ahead=how.ahead,
            slopes=self._fixed(alibi_slopes(q.outer, how.alibi)),
            sinks=self._constant(step.weights[0]) if step.weights else 0,
            scratch_pad=Ref(self.scratch), scratch_size=self.scratch_size,
            out_partials=Ref(self.partials), partials_size=self.partials_size,
            seen=chosen[0].ref if chosen else 0, seen_row=chosen[0].row if chosen else 0,
            seen_head=chosen[0].head if chosen and chosen[0].outer > 1 else 0, block=how.block,
            scale=float(how.scale), cap=float(how.softcap),
        )  # fmt: skip
        if turn:
            self._turn(step.outputs[0], found, out, turn)

    def _select(self, step: Step) -> None:
        how: Selection = step.attrs["how"]
        state = step.states[0]
        turn = self._turn_of(state)
        self._keep(state, step.inputs[1:2], turn)
        q, out = self._turned(step.inputs[0], turn), self._output(step.outputs[0])
        weights = self._place(step.inputs[2]) if len(step.inputs) > 2 else None
        self._emit(
            f"select.{self._capacity.kv_type}", count=self._count(step.inputs[0]), q=q.ref, q_row=q.row, q_head=q.head,
            weights=weights.ref if weights else 0, weights_row=weights.row if weights else 0,
            keys=self._states[state][0], **self._where(state), **writing(out), heads=q.outer, groups=out.outer,
            dim=q.inner, words=how.words, top=how.top, block=how.block, local=how.local, whole=int(how.whole),
            scratch_pad=Ref(self.scratch), scratch_size=self.scratch_size,
        )  # fmt: skip

    def _where(self, state: State) -> dict[str, Argument]:
        """The batch's word on each token: its position, and where each sequence's pages of the state are."""
        batch = self._batch
        tables = batch.window_tables if self._capacity.unit(state) == "window" else batch.tables
        return {
            "positions": self._fixed(batch.positions),
            "sequences": self._fixed(batch.sequences),
            "tables": self._fixed(tables),
            "tables_row": tables.strides[0],
        }

    def _recurrent(self, step: Step) -> dict[str, Argument]:
        """The state, with the bytes of one slot, and where in it and in the batch each sequence stands."""
        batch, state = self._batch, self._states[step.states[0]][0]
        return {
            "out_state": state,
            "slot_size": state.buffer.nbytes // self._capacity.slots,
            "sequences": batch.counts.ctypes.data + 16,
            "starts": self._fixed(batch.starts),
            "positions": self._fixed(batch.positions),
            "slots": self._fixed(batch.slots),
        }

    def _convolve(self, step: Step) -> None:
        x, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        w = step.weights[0]
        by_tap = np.ascontiguousarray(decode(w.data, w.format, w.shape).T)
        self._emit(
            "convolve", **self._recurrent(step), x=x.ref, x_row=x.row, w=self._fixed(by_tap),
            bias=self._constant(step.weights[1]) if len(step.weights) > 1 else 0,
            out=out.ref, out_row=out.row, channels=w.shape[0], taps=w.shape[1], apart=step.attrs["apart"],
        )  # fmt: skip

    def _ngrams(self, step: Step) -> None:
        how: Ngrams = step.attrs["how"]
        tokens, out = self._place(step.inputs[0]), self._output(step.outputs[0])
        multipliers, sizes, offsets = (
            self._fixed(np.array(numbers, np.uint64)) for numbers in (how.multipliers, how.sizes, how.offsets)
        )
        self._emit(
            "ngrams", **self._recurrent(step), x=tokens.ref, multipliers=multipliers, sizes=sizes, offsets=offsets,
            out=out.ref, out_row=out.row, past=len(how.multipliers) - 1, tables=len(how.sizes), end_token=how.end,
        )  # fmt: skip

    def _pool(self, step: Step) -> None:
        x, gate = (self._place(value) for value in step.inputs)
        w, out = step.weights[0], self._output(step.outputs[0])
        self._emit(
            "pool", **self._recurrent(step), x=x.ref, x_row=x.row, gate=gate.ref, gate_row=gate.row,
            w=self._constant(w), out=out.ref, out_row=out.row, channels=x.inner, taps=w.shape[0],
        )  # fmt: skip

    def _scan(self, step: Step) -> None:
        x, dt, b, c = (self._place(v) for v in step.inputs)
        a, out = step.weights[0], self._output(step.outputs[0])
        self._emit(
            "scan", **self._recurrent(step), x=x.ref, x_row=x.row, dt=dt.ref, dt_row=dt.row, a=self._constant(a),
            b=b.ref, b_row=b.row, c=c.ref, c_row=c.row, out=out.ref, out_row=out.row, channels=x.inner, n=b.inner,
        )  # fmt: skip

    def _linear_attend(self, step: Step) -> None:
        q, k, v, *others = (self._place(value) for value in step.inputs)
        beta, out = others[-1] if step.attrs["delta"] else None, self._output(step.outputs[0])
        if step.weights:
            width = step.weights[0].shape[1]
            decay = Place(self._constant(step.weights[0]), 0, 4 * width, v.outer, width)
        else:
            decay = others[0]
        self._emit(
            "linear_attend", **self._recurrent(step), q=q.ref, q_row=q.row, q_head=q.head, k=k.ref, k_row=k.row,
            k_head=k.head, v=v.ref, v_row=v.row, v_head=v.head, decay=decay.ref, decay_row=decay.row,
            decay_head=decay.head, decay_step=4 if decay.inner > 1 else 0, beta=beta.ref if beta else 0,
            beta_row=beta.row if beta else 0, **writing(out), heads=v.outer, groups=k.outer, key_dim=k.inner,
            dim=v.inner, tiled=int(step.attrs["tiled"]),
        )  # fmt: skip
