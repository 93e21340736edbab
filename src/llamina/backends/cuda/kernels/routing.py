"""Which experts a token goes to, and what becomes of their answers."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.elementwise import sigmoid

NONE = tl.constexpr(float("-inf"))


@triton.jit
def best_groups(ranked, group, at, groups_used, whole):
    """Experts outside the best groups (by the sum of each group's two best) are out of the running."""
    top = tl.max(ranked, 1)
    first = tl.min(tl.where(ranked == top[:, None], at, 1 << 30), 1)
    second = tl.max(tl.where(at == first[:, None], NONE, ranked), 1)
    score = tl.where(whole, top, top + second)
    kept = tl.zeros_like(score)
    numbers = tl.max(group, 1)
    for _ in range(groups_used):
        open = tl.where(kept > 0, NONE, score)
        chosen = tl.min(tl.where(open == tl.max(open, 0), numbers, 1 << 30), 0)
        kept = tl.where(numbers == chosen, 1.0, kept)
    return tl.where(kept[:, None] > 0, ranked, NONE)


@triton.jit
def route(x, x_row, bias, ids, weights, count, used, groups, groups_used, each, share, factor,
          SCORING: tl.constexpr, NORMALIZE: tl.constexpr, GROUPED: tl.constexpr, GROUPS: tl.constexpr,
          EACH: tl.constexpr, USED: tl.constexpr):  # fmt: skip
    """A token's chosen experts and their weights. Experts are seen as groups × each; GROUPS × EACH is the tile.

    Rows that the step does not have go to expert 0: they are multiplied all the same.
    """
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        tl.store(ids + row * used + tl.arange(0, USED), 0, mask=tl.arange(0, USED) < used)
        return
    group = tl.arange(0, GROUPS)[:, None] + tl.zeros([1, EACH], tl.int32)
    at = tl.arange(0, EACH)[None, :] + tl.zeros([GROUPS, 1], tl.int32)
    expert, inside = group * each + at, (group < groups) & (at < each)
    scores = tl.load(x + row * x_row + expert, mask=inside, other=NONE)
    if SCORING == "sigmoid":
        scores = sigmoid(scores)
    if SCORING == "softmax":
        e = tl.exp(scores - tl.max(tl.max(scores, 1), 0))
        scores = e / tl.sum(tl.sum(e, 1), 0)
    ranked = tl.where(inside, scores, NONE)
    if bias is not None:
        ranked += tl.load(bias + expert, mask=inside, other=0.0)
    if GROUPED:
        ranked = best_groups(ranked, group, at, groups_used, each == 1)
    scores = tl.where(inside, scores, 0.0)
    slot = tl.arange(0, USED)
    found = tl.zeros([USED], tl.float32)
    for i in range(used):
        best = tl.max(tl.max(ranked, 1), 0)
        number = tl.min(tl.min(tl.where((ranked == best) & inside, expert, 1 << 30), 1), 0)
        ranked = tl.where(expert == number, NONE, ranked)
        number = number // share
        tl.store(ids + row * used + i, number)
        score = tl.sum(tl.sum(tl.where(expert == number, scores, 0.0), 1), 0)
        found = tl.where(slot == i, score, found)
    if SCORING == "softmax_selected":
        e = tl.exp(tl.where(slot < used, found - tl.max(tl.where(slot < used, found, NONE), 0), NONE))
        found = e / tl.sum(e, 0)
    if SCORING == "sigmoid_selected":
        found = sigmoid(found)
    if NORMALIZE:
        found = found / tl.maximum(tl.sum(tl.where(slot < used, found, 0.0), 0), 6.103515625e-5)
    tl.store(weights + row * used + slot, found * factor, mask=slot < used)


@triton.jit
def mix(x, x_row, x_head, weights, weights_row, out, out_row, out_head, count, used, sums, inner, BLOCK: tl.constexpr):
    """out[n] = Σ x[k] × weights[k, n]."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1)
    if row >= tl.load(count):
        return
    i = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(used):
        v = tl.load(x + row * x_row + k * x_head + i, mask=i < inner, other=0.0)
        total += v * tl.load(weights + row * weights_row + k * sums + n)
    tl.store(out + row * out_row + n * out_head + i, total, mask=i < inner)
