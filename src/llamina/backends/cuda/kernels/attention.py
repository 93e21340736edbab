"""Attention over keys and values in pages of 16 positions (`kv_cache`).

A tile is some tokens of one sequence with all query heads that share a key head; the rows of its matrices are token by
token, head by head. Tiles are cut at the starts of sequences and every TILE tokens from there.
"""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.activations import store_q8
from llamina.backends.cuda.kernels.early import begin
from llamina.backends.cuda.kernels.kv_cache import PAGE, load_lines, part

NONE = tl.constexpr(float("-inf"))
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tile_of(number, starts, sequences, spans, TILE: tl.constexpr, SEQUENCES: tl.constexpr):
    """(sequence, first token, tokens) of a tile; no tokens if there are not so many tiles.

    SEQUENCES are the most there can be; where each has one token (TILE 1), a tile is a token.
    """
    count = tl.load(spans)
    if TILE == 1:
        inside = number < tl.load(starts + count)
        sequence, first = tl.load(sequences + number, mask=inside, other=0), number
        tokens = tl.where(inside, 1, 0)
    else:
        s = tl.arange(0, SEQUENCES)
        lengths = tl.load(starts + s + 1, mask=s < count, other=0) - tl.load(starts + s, mask=s < count, other=0)
        ends = tl.cumsum((lengths + TILE - 1) // TILE, 0)
        sequence = tl.minimum(tl.sum((ends <= number).to(tl.int32), 0), count - 1)
        first = (number - tl.max(tl.where(ends <= number, ends, 0), 0)) * TILE + tl.load(starts + sequence)
        tokens = tl.minimum(TILE, tl.load(starts + sequence + 1) - first)
    return sequence, first, tokens


@triton.jit
def look(b, low, last, table, keys, values, query, rest, head, position, end, token, alive, slopes, biases, biases_row,
         distances, seen, seen_row, seen_head, kv_head, behind, ahead, chunk, seen_block, scale, cap, top, total,
         result, KV_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_ROW: tl.constexpr,
         KEY: tl.constexpr, MORE: tl.constexpr, VALUE: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
         KIND: tl.constexpr):  # fmt: skip
    """Block b of the keys: the largest score, the sum of weights and the weighted sum of values go on.

    Without MASKED, all rows see all of its keys. Scores are not scaled before the exponential, so that is one
    multiplication and addition each.
    """
    n = (low + b) * BLOCK + tl.arange(0, BLOCK)
    known = n <= last
    if MASKED:
        page = tl.load(table + n // PAGE, mask=known, other=0).to(tl.int64)
    else:
        page = tl.load(table + n // PAGE).to(tl.int64)
    line = (page * KV_HEADS + kv_head) * PAGE + n % PAGE
    k = load_lines(keys, line, known, KEY_DIM, KEY_DIM, 0, KEY, MASKED, KIND)
    scores = tl.dot(query, tl.trans(k), input_precision="ieee")
    if MORE:
        k = load_lines(keys, line, known, KEY_DIM, KEY_DIM, KEY, MORE, MASKED, KIND)
        scores += tl.dot(rest, tl.trans(k), input_precision="ieee")
    factor = scale * LOG2E
    if cap is not None:
        x = scores * (scale / cap)
        e = tl.exp2(-2.0 * LOG2E * tl.abs(x))
        scores = tl.where(x < 0, -cap, cap) * ((1.0 - e) / (1.0 + e))
        factor = LOG2E
    if slopes is not None:
        distance = tl.abs(position[:, None] - n[None, :])
        scores = scores * factor - tl.load(slopes + head, mask=alive, other=0.0)[:, None] * distance * LOG2E
        factor = 1.0
    if biases is not None:
        bias = biases + (head * biases_row + distances - position)[:, None] + n[None, :]
        scores = scores * factor + tl.load(bias, mask=alive[:, None] & known[None, :], other=0.0) * LOG2E
        factor = 1.0
    if MASKED:
        visible = known[None, :] & alive[:, None]
        if ahead is None:
            visible = visible & (n[None, :] <= end[:, None])
        else:
            visible = visible & (n[None, :] <= position[:, None] + ahead)
        if behind is not None:
            visible = visible & (position[:, None] - n[None, :] < behind)
        if chunk is not None:
            visible = visible & (n[None, :] >= (position // chunk * chunk)[:, None])
        if seen is not None:
            bit = n // seen_block
            words = tl.load(seen + (token * seen_row + kv_head * seen_head)[:, None] + (bit // 32)[None, :],
                            mask=alive[:, None] & known[None, :], other=0)  # fmt: skip
            visible = visible & (((words >> (bit % 32)[None, :]) & 1) != 0)
        scores = tl.where(visible, scores, NONE)
    most = tl.maximum(top, tl.max(scores, 1) * factor)
    level = most
    if MASKED:
        level = tl.where(most == NONE, 0.0, most)  # nothing seen yet
    weights = tl.exp2(scores * factor - level[:, None])
    shrink = tl.exp2(top - level)
    total = total * shrink + tl.sum(weights, 1)
    v = load_lines(values, line, known, VALUE_ROW, VALUE_DIM, 0, VALUE, MASKED, KIND)
    result = tl.dot(weights.to(v.dtype), v, result * shrink[:, None], input_precision="ieee")
    return most, total, result


@triton.jit
def join(top, total, result, t, s, r):
    """What was found so far and what the next part of the keys has found, in operations that no compiler fuses."""
    most = tl.maximum(top, t)
    level = tl.where(most == NONE, 0.0, most)  # nothing seen yet
    a, b = tl.exp2(top - level), tl.exp2(t - level)
    return most, tl.fma(s, b, total * a), tl.fma(r, b[:, None], result * a[:, None])


@triton.jit
def attend(q, q_row, q_head, keys, values, tables, tables_row, positions, until, sequences, starts, spans, out, out_row,
           out_head, sinks, slopes, biases, biases_row, distances, seen, seen_row, seen_head, partials, arrived, x8, xd,
           xs, behind, ahead, chunk, seen_block, scale, cap,
           KV_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_ROW: tl.constexpr,
           GROUP: tl.constexpr, TILE: tl.constexpr, SEQUENCES: tl.constexpr, ROWS: tl.constexpr, KEY: tl.constexpr,
           MORE: tl.constexpr, VALUE: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr, PADDED: tl.constexpr,
           PART: tl.constexpr, KIND: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """One tile, key head and split of the keys; a split's result goes to `partials`.

    With PART blocks, keys are summed in parts of so many, which begin at multiples of that, and parts are joined in
    order: the same bits, whether each is a split or one program has all.

    With PADDED columns, which needs tiles of one token, the split that is done last merges them all, into 8-bit blocks.

    With `until`, a token sees keys up to that position, which may come after its own.

    A head's key is taken in two parts, KEY elements and MORE (0: none); GROUP heads share a key head. What is None is
    not there: the window (`behind`), what is after a token (`ahead`), `chunk`, `cap`. Scores are logarithms of base 2.
    """
    begin(EARLY)
    number, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, first, tokens = tile_of(number, starts, sequences, spans, TILE, SEQUENCES)
    if tokens <= 0:
        return
    r = tl.arange(0, ROWS)
    token, head, alive = (first + r // GROUP).to(tl.int64), kv_head * GROUP + r % GROUP, r < tokens * GROUP
    position = tl.load(positions + token, mask=alive, other=0)
    start, last = tl.load(positions + first), tl.load(positions + first + tokens - 1)
    end = position
    if until is not None:
        end = tl.load(until + token, mask=alive, other=0)
        last = tl.max(end, 0)
    if ahead is not None:
        last = tl.minimum(last + ahead, tl.load(positions + tl.load(starts + sequence + 1) - 1))
    low = 0
    if behind is not None:
        low = tl.maximum(low, start - behind + 1)
    if chunk is not None:
        low = tl.maximum(low, start // chunk * chunk)
    low = low // BLOCK
    if PART:
        low = low // PART * PART
    blocks = last // BLOCK + 1 - low
    each = (blocks + SPLITS - 1) // SPLITS
    if PART and SPLITS > 1:
        each = PART
    stop = tl.minimum(blocks, (split + 1) * each)

    d, more, dv = tl.arange(0, KEY), KEY + tl.arange(0, MORE if MORE else 1), tl.arange(0, VALUE)
    source = q + token * q_row + head * q_head
    TYPE: tl.constexpr = tl.float16 if keys.dtype.element_ty.is_int() else keys.dtype.element_ty
    query = part(source, alive, d, KEY_DIM).to(TYPE)
    rest = query
    if MORE:
        rest = part(source, alive, more, KEY_DIM).to(TYPE)
    top = tl.full([ROWS], NONE, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, VALUE], tl.float32)
    if sinks is not None and (not PART or SPLITS == 1):
        top = tl.where(split == 0, tl.load(sinks + head, mask=alive, other=0.0) * LOG2E, NONE)
        total += tl.where(split == 0, 1.0, 0.0)
    table = tables + sequence * tables_row
    begun = tl.minimum(split * each, stop)
    whole_top, whole_total, whole_result = top, total, result
    parts = 1
    if PART and SPLITS == 1:
        parts = (blocks + PART - 1) // PART
    for p in range(parts):
        if PART and SPLITS == 1:
            begun, stop = p * PART, tl.minimum(blocks, (p + 1) * PART)
            top = tl.full([ROWS], NONE, tl.float32)
            total = tl.zeros([ROWS], tl.float32)
            result = tl.zeros([ROWS, VALUE], tl.float32)
        every = begun
        if (TILE > 1) and (ahead is None) and (behind is None) and (chunk is None) and (seen is None):
            every = tl.maximum(begun, tl.minimum((start + 1) // BLOCK - low, stop))  # all tokens see all of these keys
            for b in range(begun, every):
                top, total, result = look(
                    b, low, last, table, keys, values, query, rest, head, position, end, token, alive, slopes, biases,
                    biases_row, distances, seen, seen_row, seen_head, kv_head, behind, ahead, chunk, seen_block, scale,
                    cap, top, total, result, KV_HEADS, KEY_DIM, VALUE_DIM, VALUE_ROW, KEY, MORE, VALUE, BLOCK, False,
                    KIND,
                )  # fmt: skip
        for b in range(every, stop):
            top, total, result = look(
                b, low, last, table, keys, values, query, rest, head, position, end, token, alive, slopes, biases,
                biases_row, distances, seen, seen_row, seen_head, kv_head, behind, ahead, chunk, seen_block, scale, cap,
                top, total, result, KV_HEADS, KEY_DIM, VALUE_DIM, VALUE_ROW, KEY, MORE, VALUE, BLOCK, True, KIND,
            )  # fmt: skip
        if PART and SPLITS == 1:
            whole_top, whole_total, whole_result = join(whole_top, whole_total, whole_result, top, total, result)
    if PART and SPLITS == 1:
        top, total, result = whole_top, whole_total, whole_result
    if SPLITS == 1:
        target = out + token * out_row + head * out_head
        result = result / tl.where(alive, total, 1.0)[:, None]
        tl.store(target[:, None] + dv[None, :], result, mask=alive[:, None] & (dv < VALUE_DIM)[None, :])
    else:
        item = (token * KV_HEADS * GROUP + head) * SPLITS + split
        target = partials + item * (VALUE_DIM + 2)
        tl.store(target[:, None] + dv[None, :], result, mask=alive[:, None] & (dv < VALUE_DIM)[None, :])
        tl.store(target + VALUE_DIM, top, mask=alive)
        tl.store(target + VALUE_DIM + 1, total, mask=alive)
        if PADDED:
            tl.debug_barrier()
            place = arrived + first * KV_HEADS + kv_head
            if tl.atomic_add(place, 1) == SPLITS - 1:
                tl.store(place, 0)  # for the next kernel
                merge_group(partials, x8, xd, xs, first, kv_head, KV_HEADS, VALUE_DIM, GROUP, VALUE, SPLITS, PADDED)


@triton.jit
def merge_group(partials, x8, xd, xs, row, kv_head, KV_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr,
                GROUP: tl.constexpr, VALUE: tl.constexpr, SPLITS: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    """All heads of a token that share a key head from their splits, added in order, as 8-bit blocks."""
    head, s, d = kv_head * GROUP + tl.arange(0, GROUP), tl.arange(0, SPLITS), tl.arange(0, VALUE)
    item = (row * KV_HEADS * GROUP + head)[:, None] * SPLITS + s[None, :]
    items = partials + item.to(tl.int64) * (VALUE_DIM + 2)
    top = tl.load(items + VALUE_DIM)
    weight = tl.exp2(top - tl.max(top, 1)[:, None])
    total = tl.sum(tl.load(items + VALUE_DIM + 1) * weight, 1)
    y = tl.load(items[:, :, None] + d[None, None, :], mask=(d < VALUE_DIM)[None, None, :], other=0.0)
    y = tl.sum(y * weight[:, :, None], 1) / total[:, None]
    b = tl.arange(0, VALUE // 32)
    block = tl.reshape(head[:, None] * (VALUE_DIM // 32) + b[None, :], [GROUP * (VALUE // 32)])
    there = tl.reshape((head >= 0)[:, None] & (b < VALUE_DIM // 32)[None, :], [GROUP * (VALUE // 32)])
    store_q8(tl.reshape(y, [GROUP * (VALUE // 32), 32]), row, block, x8, xd, xs, there, PADDED)


@triton.jit
def merged(partials, item, value_dim, SPLITS: tl.constexpr, VALUE: tl.constexpr):
    """One head of a token from its splits, added in order: [VALUE]."""
    s, d = tl.arange(0, SPLITS), tl.arange(0, VALUE)
    items = partials + (item * SPLITS + s) * (value_dim + 2)
    top = tl.load(items + value_dim)
    weight = tl.exp2(top - tl.max(top, 0))
    total = tl.sum(tl.load(items + value_dim + 1) * weight, 0)
    result = tl.load(items[:, None] + d[None, :], mask=(d < value_dim)[None, :] & (s >= 0)[:, None], other=0.0)
    return tl.sum(result * weight[:, None], 0) / total


@triton.jit
def merge(partials, out, out_row, out_head, count, heads, value_dim,
          SPLITS: tl.constexpr, VALUE: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """What the splits of each head and token have found, put together."""
    begin(EARLY)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if row >= tl.load(count):
        return
    result, d = merged(partials, row * heads + head, value_dim, SPLITS, VALUE), tl.arange(0, VALUE)
    tl.store(out + row * out_row + head * out_head + d, result, mask=d < value_dim)


@triton.jit
def merge_in_order(partials, sinks, out, out_row, out_head, count, splits, HEADS: tl.constexpr, VALUE_DIM: tl.constexpr,
                   VALUE: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """The same as `merge`, one split after the other as `attend` joins parts; BLOCK heads a program."""
    begin(EARLY)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if row >= tl.load(count):
        return
    d, alive = tl.arange(0, VALUE), head < HEADS
    top = tl.full([BLOCK], NONE, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    result = tl.zeros([BLOCK, VALUE], tl.float32)
    if sinks is not None:
        top = tl.load(sinks + head, mask=alive, other=0.0) * LOG2E
        total += 1.0
    inside = alive[:, None] & (d < VALUE_DIM)[None, :]
    for s in range(splits):
        items = partials + ((row * HEADS + head) * splits + s) * (VALUE_DIM + 2)
        t = tl.load(items + VALUE_DIM, mask=alive, other=0.0)
        n = tl.load(items + VALUE_DIM + 1, mask=alive, other=1.0)
        r = tl.load(items[:, None] + d[None, :], mask=inside, other=0.0)
        top, total, result = join(top, total, result, t, n, r)
    result = result / tl.where(alive, total, 1.0)[:, None]
    tl.store(out + row * out_row + (head * out_head)[:, None] + d[None, :], result, mask=inside)
