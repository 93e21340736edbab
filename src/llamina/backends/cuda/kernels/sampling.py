"""Tokens chosen from logits: the likeliest, or a draw from the likeliest few.

    adjust    changes of single logits        mask      tokens that are not allowed
    peaks     the largest logit of each group of GROUP, and the first of the largest of each part of SPAN
    choose    the token of a row              `inputs.fetch` puts it into the next step's batch

The k likeliest are in the k groups with the largest maxima, so few logits are looked at twice. The k-th largest of some
numbers is found bit by bit. Sums of probabilities are float64, in any order; nothing is sorted, for a candidate's rank
is the number of those before it.
"""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.early import begin

GROUP = tl.constexpr(64)
SPAN = tl.constexpr(4096)
MOST = tl.constexpr(128)  # candidates
NONE = tl.constexpr(float("-inf"))
LEAST = tl.constexpr(-(1 << 31))


@triton.jit
def row_of(rows, count, LISTED: tl.constexpr):
    """The row of logits of this program, or -1 if there are not so many."""
    j = tl.program_id(0)
    row = j.to(tl.int64)
    if LISTED:
        row = tl.load(rows + j).to(tl.int64)
    return tl.where(j < tl.load(count), row, -1)


@triton.jit
def adjust(logits, rows, count, starts, tokens, biases, repeats, penalties, vocab, BLOCK: tl.constexpr):
    """Grid (rows): changes `starts[j]` to `starts[j + 1]` of row j."""
    row = row_of(rows, count, True)
    if row < 0:
        return
    end = tl.load(starts + tl.program_id(0) + 1)
    for first in range(tl.load(starts + tl.program_id(0)), end, BLOCK):
        i = first + tl.arange(0, BLOCK)
        at = logits + row * vocab + tl.load(tokens + i, mask=i < end, other=0)
        v = tl.load(at, mask=i < end, other=0.0) + tl.load(biases + i, mask=i < end, other=0.0)
        repeat = tl.load(repeats + i, mask=i < end, other=1.0)
        v = tl.where(v > 0, v / repeat, v * repeat) - tl.load(penalties + i, mask=i < end, other=0.0)
        tl.store(at, v, mask=i < end)


@triton.jit
def mask(logits, rows, count, masks, places, vocab, words, BLOCK: tl.constexpr):
    """Grid (rows, words / BLOCK): logits of tokens whose bit is not set become -inf."""
    row = row_of(rows, count, True)
    place = tl.load(places + tl.program_id(0))
    if (row < 0) | (place < 0):
        return
    at = tl.program_id(1) * BLOCK * 32 + tl.arange(0, BLOCK * 32)
    word = tl.load(masks + place * words + at // 32, mask=at < vocab, other=-1)
    tl.store(logits + row * vocab + at, NONE, mask=(at < vocab) & ((word >> (at % 32)) & 1 == 0))


@triton.jit
def peaks(logits, rows, count, maxima, best, where, vocab, parts, LISTED: tl.constexpr, EARLY: tl.constexpr):
    """Grid (rows, parts). A logit that is not a number counts as infinite."""
    begin(EARLY)
    row = row_of(rows, count, LISTED)
    if row < 0:
        return
    part = tl.program_id(0) * parts + tl.program_id(1)
    group = tl.arange(0, SPAN // GROUP)
    at = tl.program_id(1) * SPAN + group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    v = tl.load(logits + row * vocab + at, mask=at < vocab, other=NONE)
    v = tl.where(v == v, v, float("inf"))
    tops = tl.max(v, 1)
    highest = tl.max(tops, 0)
    tl.store(maxima + part * (SPAN // GROUP) + group, tops)
    tl.store(best + part, highest)
    tl.store(where + part, tl.min(tl.min(tl.where(v == highest, at, vocab), 1), 0))


@triton.jit
def ordered(v):
    """float32 → int32 in the same order, equal zeros; -inf is the least."""
    bits = (v + 0.0).to(tl.int32, bitcast=True)
    return tl.where(v == NONE, LEAST, bits ^ ((bits >> 31) & 0x7FFFFFFF))


@triton.jit
def largest(keys, k):
    """Which of the keys are the k largest, the first of equal ones; none that are LEAST."""
    found = tl.where(tl.sum((keys >= 0).to(tl.int32), 0) >= k, 0, LEAST)
    bit = tl.full([], 1 << 30, tl.int32)
    for _ in range(31):
        found = tl.where(tl.sum((keys >= (found | bit)).to(tl.int32), 0) >= k, found | bit, found)
        bit = bit >> 1
    above = keys > found
    equal = (keys == found) & (keys > LEAST)
    room = k - tl.sum(above.to(tl.int32), 0)
    return above | (equal & (tl.cumsum(equal.to(tl.int32), 0) <= room))


@triton.jit
def draw(logits, maxima, groups, found, row, k, top_p, least, temperature, number, highest, vocab, n_groups,
         GROUPS: tl.constexpr):  # fmt: skip
    """A token drawn from a row: see `backends.base.Choice`. `groups` and `found` are room for MOST each."""
    g = tl.arange(0, GROUPS)
    chosen = largest(ordered(tl.load(maxima + g, mask=g < n_groups, other=NONE)), k)
    tl.store(groups + tl.cumsum(chosen.to(tl.int32), 0) - 1, g, mask=chosen)
    some = tl.sum(chosen.to(tl.int32), 0)
    tl.debug_barrier()
    i = tl.arange(0, MOST * GROUP)
    there = i // GROUP < some
    at = tl.load(groups + i // GROUP, mask=there, other=0) * GROUP + i % GROUP
    chosen = largest(ordered(tl.load(logits + row * vocab + at, mask=there & (at < vocab), other=NONE)), k)
    tl.store(found + tl.cumsum(chosen.to(tl.int32), 0) - 1, at, mask=chosen)
    some = tl.sum(chosen.to(tl.int32), 0)
    tl.debug_barrier()
    i = tl.arange(0, MOST)
    there = i < some
    token = tl.load(found + i, mask=there, other=0)
    v = tl.load(logits + row * vocab + token, mask=there, other=NONE)
    before = (v[None, :] > v[:, None]) | ((v[None, :] == v[:, None]) & (i[None, :] < i[:, None]))
    rank = tl.sum(before.to(tl.int32), 1)
    w = tl.where(there, tl.exp((v - highest).to(tl.float64)).to(tl.float32), 0.0).to(tl.float64)
    mass = tl.sum(tl.where(before, w[None, :], 0.0), 1)
    most = tl.where(top_p < 1, top_p.to(tl.float64) * tl.sum(w, 0), float("inf"))
    stays = there & ((rank == 0) | (mass < most)) & (v >= highest + least)
    scaled = ((v - highest) / temperature).to(tl.float64)
    w = tl.where(stays, tl.exp(scaled).to(tl.float32), 0.0).to(tl.float64)
    mass = tl.sum(tl.where(before, w[None, :], 0.0), 1) + w
    reached = tl.min(tl.where(stays & (mass > number * tl.sum(w, 0)), rank, MOST), 0)
    last = tl.max(tl.where(w > 0, rank, 0), 0)  # where rounding made the number reach the sum
    return tl.sum(tl.where(there & (rank == tl.minimum(reached, last)), token, 0), 0)


@triton.jit
def choose(logits, rows, count, maxima, best, where, top_k, top_p, least, temperature, number, groups, found, ids,
           answers, step, vocab, parts, distance, PARTS: tl.constexpr, GROUPS: tl.constexpr, LISTED: tl.constexpr,
           DRAWS: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (rows): a token for each row into `ids`; -1 if all logits are -inf, -2 if the largest is not finite.

    It goes to the host as well, to the first or the second of two places for answers, as the step is even or odd.

    Without DRAWS it is the likeliest, as it is where `top_k` is 0.
    """
    begin(EARLY)
    row = row_of(rows, count, LISTED)
    if row < 0:
        return
    j = tl.program_id(0)
    p = tl.arange(0, PARTS)
    high = tl.load(best + j * parts + p, mask=p < parts, other=NONE)
    at = tl.load(where + j * parts + p, mask=p < parts, other=vocab)
    highest = tl.max(high, 0)
    token = tl.min(tl.where(high == highest, at, vocab), 0)
    if DRAWS:
        k = tl.load(top_k + j)
        if (k > 0) & (tl.abs(highest) < float("inf")):
            n_groups = parts * (SPAN // GROUP)
            token = draw(
                logits, maxima + j * n_groups, groups + j * MOST, found + j * MOST, row, k, tl.load(top_p + j),
                tl.load(least + j), tl.load(temperature + j), tl.load(number + j), highest, vocab, n_groups, GROUPS,
            )  # fmt: skip
    token = tl.where(highest == float("inf"), -2, tl.where(highest == NONE, -1, token))
    tl.store(ids + row, token)
    tl.store(answers + (tl.load(step) & 1) * distance + row, token)
