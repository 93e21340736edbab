"""Launches of attention and of the choice of what it looks at."""

from dataclasses import dataclass

import numpy as np

from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.device import Argument
from llamina.backends.cuda.lowering.calls import Calls, lowers, reading, writing
from llamina.backends.cuda.lowering.matrices import Wanted, prepared_for
from llamina.backends.cuda.memory import Place, Ref
from llamina.backends.kv_types import FLOATS
from llamina.ops import Attention, Selection, State, Step, Value
from llamina.ops.batch import PAGE
from llamina.ops.rotation import alibi_slopes, hadamard_size

ROWS = 64  # of a tile: tokens × heads that share a key head
MOST_SPLITS = 64  # of the keys of a tile
LONG = 2048  # positions from which on a token's blocks of keys are larger
PROGRAMS = 2  # of attention for each processor, where sequences have one token each
FEW = 4  # tokens up to which each head of them is rotated by a program of its own
HEADS = 4  # that one program rotates otherwise
PART = 512  # keys that are summed together, whatever the step, if bits are not to depend on it
RUN = 32  # elements that may have a scale of their own
TILES = 4  # of each sequence, on average, from which on a quantized cache is unpacked for all of them at once
UNPACKED = 256 << 20  # the most bytes that it is unpacked into
BATCH = ("positions", "sequences", "starts")


def _keep(calls: Calls, state: State, values: tuple[Value, ...]) -> None:
    """Each token's rows into the pages of its sequence."""
    for value, store in zip(values, calls.shared.states.refs[state], strict=False):
        x, heads = _rotated(calls, value, state), state.shape[0]
        calls.emit(
            "kv_cache.keep", (calls.rows(value), heads, 1), count=calls.count(value), **reading(x), pages=store,
            **_where(calls, state), positions=calls.inputs.refs["positions"], sequences=calls.inputs.refs["sequences"],
            heads=heads, dim=x.inner, KIND=calls.capacity.kv_type, BLOCK=max(RUN, power(x.inner)), EARLY=calls.early,
        )  # fmt: skip


def _where(calls: Calls, state: State) -> dict[str, Argument]:
    """The pages of each sequence in which a state is."""
    window = calls.capacity.unit(state) == "window"
    return {
        "tables": calls.inputs.refs["window_tables" if window else "tables"],
        "tables_row": calls.inputs.table_row,
    }


@lowers("attend")
def _attend(calls: Calls, step: Step) -> None:
    params: Attention = step.attrs["params"]
    state, value, refs = step.states[0], step.inputs[0], calls.inputs.refs
    stores = calls.shared.states.refs[state]
    q = calls.place(value) if _turn_and_keep(calls, step) else _rotated(calls, value, state)
    seen = calls.place(step.inputs[1 + len(stores)]) if len(step.inputs) > 1 + len(stores) else None
    kv_heads, key, dim = state.shape
    shape = tiling(calls, state, q.outer // kv_heads)
    partials = calls.new(calls.bucket.tokens * q.outer * shape.splits * (dim + 2)) if shape.splits > 1 else None
    turned = rotation(calls, state)
    merged = _prepared(calls, step) if partials and not turned else None
    final = q if merged else calls.output(step.outputs[0])  # nothing is written there if there is a merge
    out = calls.fresh(step.outputs[0]) if turned else final
    several = shape.tile > 1 and calls.bucket.tokens >= TILES * shape.tile * calls.bucket.sequences
    cache = _unpacked(calls, state, params, shape.block) if several else None
    cache = cache or Cache(stores, _where(calls, state), calls.capacity.kv_type)
    first, more = _parts(key)
    calls.emit(
        "attention.attend", (shape.tiles, kv_heads, shape.splits), shape.warps, shape.stages, q=q.ref, q_row=q.row,
        q_head=q.head, keys=cache.stores[0], values=cache.stores[-1], VALUE_ROW=dim if state.kind == "kv" else key,
        **cache.tables, spans=calls.sequences, **{name: refs[name] for name in BATCH}, **writing(out),
        until=refs["until"] if step.attrs.get("until") else None, sinks=_sinks(calls, step), **_biases(calls, step),
        slopes=calls.array(alibi_slopes(q.outer, params.alibi)) if params.alibi else None, **_seen(seen),
        partials=partials, KV_HEADS=kv_heads, KEY_DIM=key, VALUE_DIM=dim, behind=params.behind or None,
        ahead=params.ahead or None, chunk=params.chunk or None, seen_block=params.block, scale=float(params.scale),
        cap=float(params.softcap) or None, GROUP=q.outer // kv_heads, TILE=shape.tile,
        SEQUENCES=calls.inputs.sequences if shape.tile > 1 else 1, ROWS=shape.rows, KEY=first, MORE=more,
        VALUE=max(RUN, power(dim)), BLOCK=shape.block, SPLITS=shape.splits,
        PART=PART // shape.block if calls.shared.exact else 0, KIND=cache.kind, EARLY=calls.early,
        **_ending(calls, shape, merged, q.outer, kv_heads),
    )  # fmt: skip
    if merged and not _merges(shape, q.outer // kv_heads):
        wanted, room = merged
        calls.emit(
            "endings.merge", (calls.bucket.tokens, q.outer, 1), partials=partials, count=calls.count(value),
            x8=room["x8"], xd=room["xd"], xs=room["xs"], heads=q.outer, value_dim=dim, SPLITS=shape.splits,
            PADDED=wanted.padded, VALUE=power(dim), EARLY=calls.early,
        )  # fmt: skip
    elif partials and calls.shared.exact:
        calls.emit(
            "attention.merge_in_order", (calls.bucket.tokens, -(-q.outer // FEW), 1), 1, partials=partials,
            sinks=_sinks(calls, step), **writing(out), count=calls.count(value),
            splits=shape.splits, HEADS=q.outer, VALUE_DIM=dim, VALUE=max(RUN, power(dim)), BLOCK=FEW, EARLY=calls.early,
        )  # fmt: skip
    elif partials and not merged:
        calls.emit(
            "attention.merge", (calls.bucket.tokens, q.outer, 1), partials=partials, **writing(out),
            count=calls.count(value), heads=q.outer, value_dim=dim, SPLITS=shape.splits, VALUE=power(dim),
            EARLY=calls.early,
        )  # fmt: skip
    if turned:
        _rotate(calls, step.outputs[0], out, final, turned)


def _sinks(calls: Calls, step: Step) -> Argument:
    return calls.constant(step.weights[0]) if step.weights and not step.attrs["params"].distances else None


def _biases(calls: Calls, step: Step) -> dict[str, Argument]:
    """Each head's biases by distance, if there are any."""
    distances = step.attrs["params"].distances
    if not distances:
        return {"biases": None, "biases_row": 0, "distances": 0}
    table = step.weights[0]
    return {"biases": calls.constant(table), "biases_row": table.shape[1], "distances": distances}


def rotation(calls: Calls, state: State) -> int:
    """How many elements are rotated together before they are kept; 0: none are."""
    return hadamard_size(*state.shape[1:]) if calls.capacity.kv_type == "q4_0" else 0


def _rotated(calls: Calls, value: Value, state: State) -> Place:
    """Where a value is, rotated if a cache of four bits wants that."""
    x, size = calls.place(value), rotation(calls, state)
    if not size:
        return x
    _rotate(calls, value, x, out := calls.fresh(value), size)
    return out


def _rotate(calls: Calls, value: Value, x: Place, out: Place, size: int) -> None:
    calls.emit(
        "kv_cache.rotate", calls.elements(value, out), **calls.spread(value, out), **reading(x), **writing(out),
        SIZE=size, EARLY=calls.early,
    )  # fmt: skip


Merged = tuple[Wanted, dict[str, Argument]]


def _merges(shape: "Tiling", group: int) -> bool:
    """Whether the program that is done last can merge what all have found: it must hold that."""
    return shape.tile == 1 and 1 < shape.splits <= 16 and group == power(group) <= 8


def _ending(calls: Calls, shape: "Tiling", merged: Merged | None, heads: int, kv_heads: int) -> dict[str, Argument]:
    """Arguments of attention that merges its splits, or of one that does not."""
    if merged is None or not _merges(shape, heads // kv_heads):
        return {"arrived": None, "x8": None, "xd": None, "xs": None, "PADDED": 0}
    wanted, room = merged
    arrived = calls.array(np.zeros(shape.tiles * kv_heads, np.int32))  # zeros again after each kernel
    return {"arrived": arrived, "x8": room["x8"], "xd": room["xd"], "xs": room["xs"], "PADDED": wanted.padded}


@dataclass(frozen=True, slots=True)
class Tiling:
    """How attention is cut: tiles of `tile` tokens, which are `rows` of a matrix, by `block` keys in `splits` parts."""

    tile: int
    tiles: int
    rows: int
    block: int
    splits: int
    warps: int
    stages: int


def tiling(calls: Calls, state: State, group: int) -> Tiling:
    """So that no processor is idle, and that a program's part fits it; rows, block and warps do not vary if exact."""
    kv_heads, key, dim = state.shape
    bucket, wide, half = calls.bucket, power(max(key, dim)), calls.capacity.kv_type != "f32"
    alone, exact = bucket.tokens == bucket.sequences, calls.shared.exact  # alone: a token of each sequence
    most = max(1, ROWS // power(group))
    tile = 1 if alone and not exact else most  # kernels of other constants may round otherwise
    tiles = min(bucket.tokens, bucket.tokens // tile + bucket.sequences)
    rows = max(16, power((most if exact else tile) * group))
    long = alone and not exact and wide <= 128 and bucket.context >= LONG
    room = (128 if long else 64) if half else 32
    block = max(16, min(room, room * 256 // wide))
    programs = (PROGRAMS if alone else 1) * calls.shared.device.processors // max(1, tiles * kv_heads)
    splits = min(power(programs), MOST_SPLITS, bucket.context // 64)
    if exact:
        splits = bucket.context // PART if programs > 1 else 1
    warps = 8 if rows * wide > 8192 else 2 if alone and splits == 1 and wide <= 128 and not exact else 4
    return Tiling(tile, tiles, rows, block, splits, warps, 2)


def _turns(calls: Calls, step: Step) -> bool:
    """Whether queries and keys are rotated alike, and kept as they are then."""
    state, (q, k, *_) = step.states[0], step.inputs
    turns = [calls.turning.get(value.id) for value in (q, k)]
    if state.kind != "kv" or q is k:
        return False
    return turns[0] is not None and turns[1] is not None and turns[0].angles == turns[1].angles


def _turn_and_keep(calls: Calls, step: Step) -> bool:
    """Keys and values into their pages; queries and keys are rotated before, all at once if they turn alike.

    Returns whether queries are rotated for a cache of four bits by that, too.
    """
    state, (q, k, *_) = step.states[0], step.inputs
    if _turns(calls, step):
        (from_q, angles), (from_k, _) = calls.turning.pop(q.id), calls.turning.pop(k.id)
        out, v, (keys, values) = calls.output(q), calls.place(step.inputs[2]), calls.shared.states.refs[state]
        kv_heads, key, dim = state.shape
        some = 1 if calls.rows(q) <= FEW and not calls.shared.exact else HEADS
        groups = -(-out.outer // some) + 2 * -(-kv_heads // some)
        calls.emit(
            "endings.turn_and_keep", (calls.rows(q), groups, 1), some, count=calls.count(q),
            q=from_q.ref, q_row=from_q.row, q_head=from_q.head, k=from_k.ref, k_row=from_k.row, k_head=from_k.head,
            v=v.ref, v_row=v.row, v_head=v.head, **angles, **writing(out), keys=keys, values=values,
            **_where(calls, state), positions=calls.inputs.refs["positions"],
            sequences=calls.inputs.refs["sequences"], heads=out.outer, kv_heads=kv_heads, key_dim=key, value_dim=dim,
            KIND=calls.capacity.kv_type, HEADS=some, BLOCK=max(RUN, power(max(key, dim))),
            HADAMARD=rotation(calls, state), EARLY=calls.early,
        )  # fmt: skip
        return True
    for value in (q, k):
        if value.id in calls.turning:
            calls.turn(value)
    _keep(calls, state, step.inputs[1 : 1 + len(calls.shared.states.refs[state])])
    return False


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values as attention reads them: where they are, the pages of each sequence, and their type."""

    stores: list[Ref]
    tables: dict[str, Argument]
    kind: str


def _unpacked(calls: Calls, state: State, params: Attention, block: int) -> Cache | None:
    """What the step sees of a quantized cache as float16, so that not every tile unpacks it again.

    None for a cache of floats, where there is no room for so many, and if bits must be those of any other step.
    """
    bucket, (heads, *dims), kind = calls.bucket, state.shape, calls.capacity.kv_type
    pages = bucket.context // PAGE
    dims = dims if state.kind == "kv" else dims[:1]
    lines = bucket.sequences * bucket.context * heads
    if kind in FLOATS or calls.shared.exact or (nbytes := 2 * lines * sum(dims)) > UNPACKED:
        return None
    if (room := calls.shared.scratch(nbytes)) is None:
        return None
    refs = {name: calls.inputs.refs[name] for name in ("positions", "starts")}
    floats: list[Ref] = []
    for store, dim in zip(calls.shared.states.refs[state], dims, strict=True):
        floats.append(floats[-1].at(lines * dims[0]) if floats else Ref(room, 0, "fp16"))
        calls.emit(
            "kv_cache.unpack", (pages, bucket.sequences, heads), store=store, out=floats[-1],
            **_where(calls, state), **refs, spans=calls.sequences, behind=params.behind or None, pages=pages,
            HEADS=heads, DIM=dim, WIDE=max(RUN, power(dim)), BLOCK=block, KIND=kind, EARLY=calls.early,
        )  # fmt: skip
    table = calls.array(np.arange(bucket.sequences * pages, dtype=np.int32))
    return Cache(floats, {"tables": table, "tables_row": pages}, "f16")


def _prepared(calls: Calls, step: Step) -> Merged | None:
    """Room for the heads side by side as 8-bit blocks, if a product reads them so and nobody reads them otherwise."""
    heads, dim = step.outputs[0].shape
    index = calls.readers.only(step.outputs[0])
    if index is None or calls.readers.steps[index].op != "reshape" or dim % 32 or heads * dim % 128:
        return None
    flat = calls.readers.steps[index].outputs[0]
    readers = [calls.readers.steps[i].op for i in calls.readers.of(flat)]
    if set(readers) != {"linear"}:
        return None
    found = prepared_for(calls, flat)
    if found and found[0].kind != "q8":
        del calls.prepared[flat.id, found[0].kind]
        return None
    if found:
        calls.done.add(index)
    return found


def _parts(dim: int) -> tuple[int, int]:
    """A key's elements as powers of two: all of them at once, or a large part and the rest; RUN at the least."""
    whole = max(RUN, power(dim))
    large = whole // 2
    if large < RUN or max(RUN, power(dim - large)) >= large:
        return whole, 0
    return large, max(RUN, power(dim - large))


def _seen(seen: Place | None) -> dict[str, Argument]:
    if seen is None:
        return {"seen": None, "seen_row": 0, "seen_head": 0}
    return {"seen": seen.ref, "seen_row": seen.row, "seen_head": seen.head if seen.outer > 1 else 0}


@lowers("select")
def _select(calls: Calls, step: Step) -> None:
    params: Selection = step.attrs["params"]
    state, value = step.states[0], step.inputs[0]
    _keep(calls, state, step.inputs[1:2])
    q, out = _rotated(calls, value, state), calls.output(step.outputs[0])
    weights = calls.place(step.inputs[2]) if len(step.inputs) > 2 else None
    blocks = params.words * 32
    found: Ref = calls.new(calls.rows(value) * out.outer * blocks)
    calls.emit(
        "select.scores", (calls.rows(value), out.outer, -(-blocks // 64)), count=calls.count(value), q=q.ref,
        q_row=q.row, q_head=q.head, weights=weights.ref if weights else None,
        weights_row=weights.row if weights else 0, keys=calls.shared.states.refs[state][0], **_where(calls, state),
        positions=calls.inputs.refs["positions"], sequences=calls.inputs.refs["sequences"], out=found, heads=q.outer,
        groups=out.outer, blocks=blocks, block=params.block, WHOLE=int(params.whole), DIM=q.inner,
        WIDE=max(RUN, power(q.inner)), BLOCK=64, KIND=calls.capacity.kv_type,
    )  # fmt: skip
    calls.emit(
        "select.choose", (calls.rows(value), out.outer, 1), count=calls.count(value), scores=found,
        positions=calls.inputs.refs["positions"], **writing(out), groups=out.outer, blocks=blocks, words=params.words,
        top=min(params.top, 1 << 30), block=params.block, local=params.local, WHOLE=int(params.whole),
        BLOCK=max(32, min(1024, power(blocks))),
    )  # fmt: skip
