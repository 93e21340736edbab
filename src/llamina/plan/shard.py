"""Tensor parallelism as a pass over a plan: each rank gets its rows or columns of the weights, and partial sums meet.

The steps are walked with the layouts of their values. A product of a value that every rank has begins to divide: a rank
has some rows of the matrix, and some elements of the result. Elementwise operations, norms of heads and attention go on
with these. A product of a divided value has a rank's columns of the matrix, and gives a term of a sum over the ranks;
`all_reduce` adds the terms up where something else than a sum is made of them.

An operation that cannot go on has the walk begin again, with the products it came from not divided, or divided in
larger units: heads, or blocks of a quantization format. What is divided nowhere is computed by every rank.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import lcm, prod

from llamina.errors import UnsupportedModel
from llamina.ops import Step, Value, Weight
from llamina.ops.link import Link
from llamina.plan.layout import Range, Segment, Share, reshaped
from llamina.plan.record import Plan
from llamina.plan.sharding import Sharding, Taken, walk

Rule = Callable[[Sharding, Step], None]
RULES: dict[str, Rule] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def shard(plan: Plan, link: Link, taken: Taken | None = None) -> Plan:
    """The plan of one rank, whose `all_reduce` steps have the link. All ranks' plans have the same steps of that kind.

    Parts of weights are looked up in `taken` and kept there, for other plans of the same model. Raises UnsupportedModel
    that says why if nothing of it can be divided, or if it has LoRA adapters.
    """
    return walk(plan, link, lambda s, step: RULES.get(step.op, everywhere)(s, step), {} if taken is None else taken)


def everywhere(s: Sharding, step: Step) -> None:
    """Every rank computes all of it."""
    s.emit(step, [s.whole(v, f"{step.op} ({step.name}) needs all of its input") for v in step.inputs], "whole")


@rule("adapt")
def _adapt(s: Sharding, step: Step) -> None:
    raise UnsupportedModel("LoRA adapters are of whole matrices: load the model without tensor_parallel to use them")


# ---- products -----------------------------------------------------------------------------------------------------


@rule("linear", "expert_linear")
def _product(s: Sharding, step: Step) -> None:
    """w [out, in], or one for each expert."""
    w, x = step.weights[0], step.inputs[0]
    more = [s.whole(v, "experts are chosen by every rank") for v in step.inputs[1:]]
    layout, axis = s.layout(x), len(w.shape) - 1
    if isinstance(layout, Share) and layout.axis == len(x.shape) - 1:
        s.emit(step, [s.local(x), *more], "partial", [s.rows(w, axis, layout)])
    elif isinstance(layout, Share):  # the same matrix for each head
        s.emit(step, [s.local(x), *more], layout)
    else:
        whole, out = s.whole(x, ""), step.outputs[0]
        share = s.begin(out, len(out.shape) - 1, f"{w.name} has too few rows")
        if share is None:
            s.emit(step, [whole, *more], "whole")
        else:
            s.emit(step, [whole, *more], share, [s.rows(w, axis - 1, share)])


@rule("head_linear")
def _head_linear(s: Sharding, step: Step) -> None:
    """A matrix for each head: w [heads, out, in]."""
    layout = s.layout(step.inputs[0])
    if isinstance(layout, Share) and layout.axis == 0:
        s.emit(step, [s.local(step.inputs[0])], layout, [s.rows(step.weights[0], 0, layout)])
    else:
        everywhere(s, step)


@rule("expert_bias")
def _expert_bias(s: Sharding, step: Step) -> None:
    x, chosen = step.inputs
    layout = s.layout(x)
    if isinstance(layout, Share):
        bias = s.rows(step.weights[0], 1, layout)
        s.emit(step, [s.local(x), s.whole(chosen, "")], layout, [bias])
    else:
        everywhere(s, step)


@rule("mix")
def _mix(s: Sharding, step: Step) -> None:
    """A sum of terms is a term of the sum."""
    x, weights = step.inputs
    if s.layout(x) == "partial":
        s.emit(step, [s.local(x), s.whole(weights, "weights of experts are needed whole")], "partial")
    else:
        everywhere(s, step)


# ---- element by element -------------------------------------------------------------------------------------------


@rule("activate", "softcap", "at_most", "at_least", "temper")
def _unary(s: Sharding, step: Step) -> None:
    layout = s.layout(step.inputs[0])
    if isinstance(layout, Share):
        s.emit(step, [s.local(step.inputs[0])], layout)
    else:
        everywhere(s, step)


@rule("scale", "pick")
def _scale(s: Sharding, step: Step) -> None:
    """Of terms, terms."""
    s.emit(step, [s.local(step.inputs[0])], s.layout(step.inputs[0]))


@rule("add", "mul", "div", "gated")
def _binary(s: Sharding, step: Step) -> None:
    x, layout = step.inputs[0], s.layout(step.inputs[0])
    other: Value | Weight = step.inputs[1] if len(step.inputs) > 1 else step.weights[0]
    theirs = s.layout(other) if isinstance(other, Value) else "whole"
    sums = {"add": "partial", "mul": "whole", "div": "whole"}
    if layout == "partial" and theirs == sums.get(step.op):
        s.emit(step, [s.local(v) for v in step.inputs], "partial")
    elif isinstance(layout, Share):
        _beside(s, step, x, layout, other)
    elif isinstance(theirs, Share) and isinstance(other, Value):
        axis = theirs.axis + len(x.shape) - len(other.shape)
        if x.shape[axis] != other.shape[theirs.axis]:
            s.refuse(theirs, f"{step.op} repeats a part over the whole")
        share = replace(theirs, axis=axis)
        s.emit(step, [s.part(x, share), s.local(other)], share)
    else:
        everywhere(s, step)


def _beside(s: Sharding, step: Step, x: Value, share: Share, other: Value | Weight) -> None:
    """x is divided; the other operand is divided alike, unless it is repeated along that axis."""
    axis = share.axis - (len(x.shape) - len(other.shape))
    repeated = axis < 0 or (other.shape[axis] == 1 and x.shape[share.axis] != 1)
    if isinstance(other, Weight):
        s.emit(step, [s.local(x)], share, [other if repeated else s.rows(other, axis, share)])
        return
    theirs = s.layout(other)
    if repeated:
        s.emit(step, [s.local(x), s.whole(other, f"{step.op} repeats what is divided")], share)
        return
    if isinstance(theirs, Share):
        share = _alike(s, share, theirs, axis, step)
    s.emit(step, [s.local(x), s.part(other, replace(share, axis=axis))], share)


def _alike(s: Sharding, share: Share, other: Share, axis: int, step: Step) -> Share:
    """One division that both operands have; units are made equal first."""
    sizes, theirs = [x.size for x in share.segments], [x.size for x in other.segments]
    if other.axis != axis or sizes != theirs:
        s.refuse(other, f"{step.op} has operands that are divided in different ways")
    for a, b in zip(share.segments, other.segments, strict=True):
        if a.unit != b.unit:
            both = Segment(a.size, lcm(a.unit, b.unit), a.origins | b.origins)
            s.enlarge(both, both.unit, f"{step.op} has operands of different units")
    merged = [replace(a, origins=a.origins | b.origins) for a, b in zip(share.segments, other.segments, strict=True)]
    return Share(share.axis, tuple(merged))


@rule("rms_norm", "layer_norm")
def _norm(s: Sharding, step: Step) -> None:
    """Of each head; over all heads at once it needs all of them."""
    x, layout = step.inputs[0], s.layout(step.inputs[0])
    if not isinstance(layout, Share):
        everywhere(s, step)
        return
    if layout.axis == len(x.shape) - 1:
        s.refuse(layout, f"{step.op} ({step.name}) needs all of its input")
    wide = [w for w in step.weights if prod(w.shape) == x.size != x.shape[-1]]
    weights = [s.rows(w.shaped(*x.shape), 0, layout) if w in wide else w for w in step.weights]
    s.emit(step, [s.local(x)], layout, weights)


@rule("softmax", "rope")
def _by_heads(s: Sharding, step: Step) -> None:
    layout = s.layout(step.inputs[0])
    if isinstance(layout, Share) and layout.axis < len(step.inputs[0].shape) - 1:
        s.emit(step, [s.local(step.inputs[0])], layout)
    else:
        everywhere(s, step)


# ---- layout -------------------------------------------------------------------------------------------------------


@rule("reshape")
def _reshape(s: Sharding, step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    layout = s.layout(x)
    if isinstance(layout, Share):
        found = reshaped(layout, x.shape, out.shape)
        if isinstance(found, int):
            segment = next(segment for segment in layout.segments if segment.unit % found)
            s.enlarge(segment, lcm(segment.unit, found), f"there are too few heads of {found}")
        if not isinstance(found, Share):
            s.refuse(layout, f"{list(x.shape)} is reshaped to {list(out.shape)}")
        layout = found
    s.emit(step, [s.local(x)], layout)


@rule("slice")
def _slice(s: Sharding, step: Step) -> None:
    x, start, size = step.inputs[0], step.attrs["start"], step.outputs[0].shape[-1]
    layout = s.layout(x)
    if not isinstance(layout, Share):
        everywhere(s, step)
    elif layout.axis < len(x.shape) - 1:
        s.emit(step, [s.local(x)], layout)
    else:
        ends = [0]
        for segment in layout.segments:
            ends.append(ends[-1] + segment.size)
        if start not in ends or start + size not in ends:
            s.refuse(layout, "a slice begins or ends within what is divided")
        first, last = ends.index(start), ends.index(start + size)
        before = Share(layout.axis, layout.segments[:first]).local(s.rank, s.ranks)
        share = Share(layout.axis, layout.segments[first:last])
        s.emit(step, [s.local(x)], share, attrs={**step.attrs, "start": before})


@rule("concat")
def _concat(s: Sharding, step: Step) -> None:
    """Heads beside heads; one head beside each may be whole."""
    x, y = step.inputs
    layout, theirs = s.layout(x), s.layout(y)
    if isinstance(layout, Share) and layout.axis < len(x.shape) - 1:
        if y.shape[0] == 1 != x.shape[0]:
            s.emit(step, [s.local(x), s.whole(y, "concat repeats what is divided")], layout)
            return
        if isinstance(theirs, Share):
            layout = _alike(s, layout, theirs, layout.axis, step)
        s.emit(step, [s.local(x), s.part(y, layout)], layout)
    else:
        everywhere(s, step)


# ---- attention ----------------------------------------------------------------------------------------------------


@rule("attend")
def _attend(s: Sharding, step: Step) -> None:
    """Heads of q, with the key heads that they share."""
    latent = step.states[0].kind == "latent"
    q, *others = step.inputs[: 2 if latent else 3]
    shares = {v.id: layout for v in (q, *others) if isinstance(layout := s.layout(v), Share)}
    for share in shares.values():
        if share.axis or len(share.segments) > 1:
            s.refuse(share, f"attention ({step.name}) cannot be divided by heads")
        if step.attrs["params"].alibi:
            s.refuse(share, f"attention ({step.name}) has ALiBi biases, which depend on the number of heads")
    if not shares:
        everywhere(s, step)
    elif others[0].shape[0] < s.ranks:
        _few_keys(s, step, q, others)
    else:
        _by_keys(s, step, [q, *others], {id: share.segments[0] for id, share in shares.items()})


def _few_keys(s: Sharding, step: Step, q: Value, others: list[Value]) -> None:
    """Fewer key heads than ranks, or a latent key: every rank has the one that its heads of q share."""
    heads, keys, share = q.shape[0], others[0].shape[0], s.layout(q)
    assert isinstance(share, Share), "so few key heads are not divided"
    first, _ = share.ranges(s.rank, s.ranks)[0]
    if keys > 1 and (s.ranks % keys or heads % s.ranks or heads // s.ranks % share.segments[0].unit):
        s.refuse(share, f"{heads} heads with {keys} key heads cannot be divided among {s.ranks} ranks")
    head = first * keys // heads
    local = [s.whole(v, "") if keys == 1 else s.cut(v, 0, head, head + 1) for v in others]
    _emit_attention(s, step, [s.local(q), *local], share, (head, head + 1))


def _by_keys(s: Sharding, step: Step, values: list[Value], found: dict[int, Segment]) -> None:
    """Key heads are divided, and heads of q with them."""
    q, keys = values[0], values[1].shape[0]
    group = q.shape[0] // keys
    units = {id: x.unit if id == q.id else group * x.unit for id, x in found.items()}  # in heads of q
    unit = lcm(group, *units.values())
    for id, x in found.items():
        if units[id] != unit:
            s.enlarge(x, unit if id == q.id else unit // group, f"attention ({step.name}) has too few key heads")
    several = [x if id == q.id else x.times(Fraction(group)) for id, x in found.items()]
    origins = frozenset(origin for x in several for origin in x.origins)
    share, own = Share(0, (Segment(q.shape[0], unit, origins),)), Share(0, (Segment(keys, unit // group, origins),))
    local = [s.part(q, share), *(s.part(v, own) for v in values[1:])]
    _emit_attention(s, step, local, share, own.ranges(s.rank, s.ranks)[0])


def _emit_attention(s: Sharding, step: Step, local: list[Value], share: Share, keys: Range) -> None:
    """`keys` are the rank's key heads."""
    state = step.states[0]
    s.states[state] = replace(state, shape=(keys[1] - keys[0], *state.shape[1:]))
    for selected in step.inputs[len(local) :]:  # by all key heads, or by each
        local.append(s.whole(selected, "every rank selects") if selected.shape[0] == 1 else s.cut(selected, 0, *keys))
    heads = step.inputs[0].shape[0]
    tables = [s.rows(w.shaped(heads, *([w.size // heads] if w.size > heads else [])), 0, share) for w in step.weights]
    s.emit(step, local, share, tables, states=(s.states[state],))
