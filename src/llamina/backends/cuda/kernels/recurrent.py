"""Operations along a sequence, with a state per slot that lives on to the next step.

`starts` are the first tokens of sequences in the batch, `slots` where their states are. A sequence whose first token is
at position 0 begins with zeros.
"""

import triton
import triton.language as tl


@triton.jit
def before(x, x_row, kept, past, columns, at, first, row, back, begun, inside):
    """Each column's value `back` tokens before a row of the batch: from the batch, else from what is kept."""
    source = row - back
    here = source >= first
    new = tl.load(x + source * x_row + at, mask=inside & here, other=0.0)
    old = tl.load(kept + (past + source - first) * columns + at, mask=inside & (here == 0) & begun, other=0.0)
    return tl.where(here, new, old)


@triton.jit
def convolve(x, x_row, w, bias, state, out, out_row, count, sequences, starts, positions, slots, channels, taps, apart,
             BLOCK: tl.constexpr):  # fmt: skip
    """out = Σ w[tap] × x of (taps - 1 - tap) × apart tokens before, plus bias; w is [taps, channels]."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    sequence = tl.load(sequences + row)
    first = tl.load(starts + sequence)
    past = (taps - 1) * apart
    kept = state + tl.load(slots + sequence).to(tl.int64) * past * channels
    begun = tl.load(positions + first) > 0
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < channels
    total = tl.zeros([BLOCK], tl.float32)
    for tap in range(taps):
        v = before(x, x_row, kept, past, channels, i, first, row, (taps - 1 - tap) * apart, begun, inside)
        total += v * tl.load(w + tap * channels + i, mask=inside, other=0.0)
    if bias is not None:
        total += tl.load(bias + i, mask=inside, other=0.0)
    tl.store(out + row * out_row + i, total, mask=inside)


@triton.jit
def pool(x, x_row, gate, gate_row, w, state, out, out_row, count, sequences, starts, positions, slots, channels, taps,
         BLOCK: tl.constexpr):  # fmt: skip
    """Each channel's mean over the last tokens, weighed by the softmax of their gates + w [taps, channels]."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        return
    sequence = tl.load(sequences + row)
    first = tl.load(starts + sequence)
    past, columns = taps - 1, 2 * channels
    kept = state + tl.load(slots + sequence).to(tl.int64) * past * columns
    begun = tl.load(positions + first) > 0
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < channels
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total, weight = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for tap in range(taps):
        back = taps - 1 - tap
        g = before(gate, gate_row, kept + channels, past, columns, i, first, row, back, begun, inside)
        g += tl.load(w + tap * channels + i, mask=inside, other=0.0)
        v = before(x, x_row, kept, past, columns, i, first, row, back, begun, inside)
        most = tl.maximum(top, g)
        shrink, e = tl.exp(top - most), tl.exp(g - most)
        total, weight, top = total * shrink + v * e, weight * shrink + e, most
    tl.store(out + row * out_row + i, total / weight, mask=inside)


@triton.jit
def keep_recent(x, x_row, state, count, starts, positions, slots, past, columns, column, width,
                TOKENS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The last `past` rows of each sequence into its state, from `column` on. TOKENS: x is ids, kept one higher."""
    sequence = tl.program_id(0)
    if sequence >= tl.load(count):
        return
    first = tl.load(starts + sequence).to(tl.int64)
    new = tl.load(starts + sequence + 1) - first
    kept = state + tl.load(slots + sequence).to(tl.int64) * past * columns + column
    begun = tl.load(positions + first) > 0
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < width
    for at in range(past):  # a row is read before it is written: it moves up
        source = at + new - past
        here = source >= 0
        old = tl.load(kept + (at + new) * columns + i, mask=inside & (here == 0) & begun, other=0.0)
        v = tl.load(x + (first + source) * x_row + i, mask=inside & here, other=0)
        if TOKENS:
            v = v.to(tl.float32) + 1.0
        tl.store(kept + at * columns + i, tl.where(here, v, old), mask=inside)


@triton.jit
def ngrams(tokens, state, multipliers, sizes, offsets, out, out_row, count, sequences, starts, positions, slots, past,
           tables, each, end, BLOCK: tl.constexpr):  # fmt: skip
    """The row of each table for the n-gram that ends with a token; `each` tables are of the same length.

    Rows that the step does not have are 0: they are looked up all the same.
    """
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(count):
        tl.store(out + row * out_row + tl.arange(0, BLOCK), 0, mask=tl.arange(0, BLOCK) < tables)
        return
    sequence = tl.load(sequences + row)
    first = tl.load(starts + sequence)
    kept = state + tl.load(slots + sequence).to(tl.int64) * past
    begun = tl.load(positions + first) > 0
    i = tl.arange(0, BLOCK)
    inside = i < tables
    size = tl.load(sizes + i, mask=inside, other=1).to(tl.uint64)
    offset = tl.load(offsets + i, mask=inside, other=0)
    mixed = tl.load(tokens + row).to(tl.int64) * tl.load(multipliers)
    found = tl.zeros([BLOCK], tl.int64)
    cut = row < 0
    for tap in range(1, past + 1):
        source = row - tap
        here = source >= first
        new = tl.load(tokens + source, mask=here, other=0).to(tl.int64)
        old = tl.load(kept + past + source - first, mask=(here == 0) & begun, other=0.0).to(tl.int64) - 1
        token = tl.where(here, new, old)
        cut = cut | (token < 0) | (token == end)
        mixed = mixed ^ (tl.where(cut, end, token).to(tl.int64) * tl.load(multipliers + tap))
        found = tl.where(i // each == tap - 1, (mixed.to(tl.uint64) % size).to(tl.int64), found)
    tl.store(out + row * out_row + i, (found + offset).to(tl.int32), mask=inside)


@triton.jit
def scan(x, x_row, dt, dt_row, a, b, b_row, c, c_row, state, out, out_row, count, starts, positions, slots, channels, n,
         BLOCK: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """h ← h·exp(dt·a) + dt·x·b;  y = h·c, for BLOCK channels of one sequence, token after token."""
    sequence = tl.program_id(0)
    if sequence >= tl.load(count):
        return
    first, last = tl.load(starts + sequence).to(tl.int64), tl.load(starts + sequence + 1)
    i, j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    inside = (i < channels)[:, None] & (j < n)[None, :]
    at = i[:, None] * n + j[None, :]
    rates = tl.load(a + at, mask=inside, other=0.0)
    kept = state + tl.load(slots + sequence).to(tl.int64) * channels * n + at
    h = tl.load(kept, mask=inside & (tl.load(positions + first) > 0), other=0.0)
    for t in range(first, last):
        step = tl.load(dt + t * dt_row + i, mask=i < channels, other=0.0)
        v = tl.load(x + t * x_row + i, mask=i < channels, other=0.0) * step
        enter = tl.load(b + t * b_row + j, mask=j < n, other=0.0)
        leave = tl.load(c + t * c_row + j, mask=j < n, other=0.0)
        h = h * tl.exp(step[:, None] * rates) + v[:, None] * enter[None, :]
        tl.store(out + t * out_row + i, tl.sum(h * leave[None, :], 1), mask=i < channels)
    tl.store(kept, h, mask=inside)


@triton.jit
def linear_attend(q, q_row, q_head, k, k_row, k_head, v, v_row, v_head, decay, decay_row, decay_head, decay_step, beta,
                  beta_row, state, out, out_row, out_head, count, starts, positions, slots, heads, groups, key, dim,
                  TILED: tl.constexpr, KEY: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """S ← S·decay + k⊗v;  out = q·S, for BLOCK columns of one head's matrix; with beta, the delta rule."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    if sequence >= tl.load(count):
        return
    first, last = tl.load(starts + sequence).to(tl.int64), tl.load(starts + sequence + 1)
    group = head % groups if TILED else head * groups // heads
    i, j = tl.arange(0, KEY), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < key)[:, None] & (j < dim)[None, :]
    kept = state + (tl.load(slots + sequence).to(tl.int64) * heads + head) * key * dim + i[:, None] * dim + j[None, :]
    memory = tl.load(kept, mask=inside & (tl.load(positions + first) > 0), other=0.0)
    for t in range(first, last):
        rate = tl.load(decay + t * decay_row + head * decay_head + i * decay_step, mask=i < key, other=0.0)
        query = tl.load(q + t * q_row + group * q_head + i, mask=i < key, other=0.0)
        name = tl.load(k + t * k_row + group * k_head + i, mask=i < key, other=0.0)
        new = tl.load(v + t * v_row + head * v_head + j, mask=j < dim, other=0.0)
        memory = memory * rate[:, None]
        if beta is not None:
            new = (new - tl.sum(name[:, None] * memory, 0)) * tl.load(beta + t * beta_row + head)
        memory = memory + name[:, None] * new[None, :]
        tl.store(out + t * out_row + head * out_head + j, tl.sum(query[:, None] * memory, 0), mask=j < dim)
    tl.store(kept, memory, mask=inside)
