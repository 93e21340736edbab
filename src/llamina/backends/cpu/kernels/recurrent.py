"""Recurrences, token by token within each sequence: the result cannot depend on how a prompt is cut."""

import math

import numpy as np

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.vector.math import exp8, first, load_lanes, store_lanes
from llamina.backends.cpu.kernels.vector.memory import f32, i32, i64, set_f32, set_i32
from llamina.backends.cpu.kernels.vector.simd import fma, hsum_f32, load_f32, splat_f32, store_f32, zero_f32


@device
def clear(address, n):
    for i in range(n):
        set_f32(address + 4 * i, np.float32(0))


@device
def convolved(x, x_row, begin, t, state, past, channels, w, bias, taps, apart, lanes):
    """One token's sum over the taps, for eight channels; tokens before `begin` are in the state."""
    total = load_lanes(bias, lanes) if bias else zero_f32()
    for tap in range(taps):
        at = t - past + tap * apart
        source = x + at * x_row if at >= begin else state + 4 * (at - begin + past) * channels
        total = fma(load_lanes(source, lanes), load_lanes(w + 4 * tap * channels, lanes), total)
    return total


@kernel(writes=("states", "out"))
def convolve(
    thread, threads, states, slot_size, sequences, starts, positions, slots, x, x_row, w, bias, out, out_row,
    channels, taps, apart,
):  # fmt: skip
    """Each channel with its own taps, w [taps, channels]; the state holds the last inputs, [slot, past, channels]."""
    registers, past = (channels + 7) // 8, (taps - 1) * apart
    low, high = 8 * first(registers, thread, threads), min(8 * first(registers, thread + 1, threads), channels)
    for s in range(i64(sequences)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        state = states + i32(slots + 4 * s) * slot_size
        if i32(positions + 4 * begin) == 0:
            for k in range(past):
                clear(state + 4 * (k * channels + low), high - low)
        for t in range(begin, end):
            for c in range(low, high, 8):
                b = bias + 4 * c if bias else 0
                y = convolved(
                    x + 4 * c, x_row, begin, t, state + 4 * c, past, channels, w + 4 * c, b, taps, apart, high - c
                )
                store_lanes(out + t * out_row + 4 * c, y, high - c)
        for k in range(past):  # upwards: what is still to be read lies above
            at = end - past + k
            source = x + at * x_row if at >= begin else state + 4 * (at - begin + past) * channels
            for c in range(low, high):
                set_f32(state + 4 * (k * channels + c), f32(source + 4 * c))


@kernel(writes=("states", "out"))
def ngrams(
    thread, threads, states, slot_size, sequences, starts, positions, slots, x, multipliers, sizes, offsets, out,
    out_row, past, tables, end_token,
):  # fmt: skip
    """Rows of tables by hashes of 2, 3, … tokens; the state holds the last tokens + 1, 0 being none, [slot, past]."""
    each = tables // past
    for s in range(first(i64(sequences), thread, threads), first(i64(sequences), thread + 1, threads)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        state = states + i32(slots + 4 * s) * slot_size
        if i32(positions + 4 * begin) == 0:
            clear(state, past)
        for t in range(begin, end):
            mixed, cut = np.uint64(i32(x + 4 * t)) * np.uint64(i64(multipliers)), False
            for k in range(1, past + 1):
                token = (
                    i32(x + 4 * (t - k)) if t - k >= begin else np.int64(f32(state + 4 * (t - k - begin + past))) - 1
                )
                cut = cut or token < 0 or token == end_token
                mixed ^= np.uint64(end_token if cut else token) * np.uint64(i64(multipliers + 8 * k))
                for i in range((k - 1) * each, k * each):
                    row = mixed % np.uint64(i64(sizes + 8 * i)) + np.uint64(i64(offsets + 8 * i))
                    set_i32(out + t * out_row + 4 * i, np.int64(row))
        for k in range(past):  # upwards: what is still to be read lies above
            at = end - past + k
            kept = np.float32(i32(x + 4 * at) + 1) if at >= begin else f32(state + 4 * (at - begin + past))
            set_f32(state + 4 * k, kept)


@device
def recent(x, x_row, begin, at, state, past, width):
    """Where a channel of token `at` is: those before `begin` are in the state."""
    return x + at * x_row if at >= begin else state + 4 * (at - begin + past) * width


@kernel(writes=("states", "out"))
def pool(
    thread, threads, states, slot_size, sequences, starts, positions, slots, x, x_row, gate, gate_row, w, out,
    out_row, channels, taps,
):  # fmt: skip
    """Each channel over the last taps, weighed by the softmax of gate + w; the state is [slot, taps-1, x and gate]."""
    past, width = taps - 1, 2 * channels
    low, high = first(channels, thread, threads), first(channels, thread + 1, threads)
    for s in range(i64(sequences)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        state = states + i32(slots + 4 * s) * slot_size
        for c in range(low, high):
            xs, gates = state + 4 * c, state + 4 * (channels + c)
            if i32(positions + 4 * begin) == 0:
                for k in range(past):
                    set_f32(xs + 4 * k * width, np.float32(0))
                    set_f32(gates + 4 * k * width, np.float32(0))
            for t in range(begin, end):
                top = np.float32(-np.inf)
                for k in range(taps):
                    g = recent(gate + 4 * c, gate_row, begin, t - past + k, gates, past, width)
                    top = max(top, f32(g) + f32(w + 4 * (k * channels + c)))
                total, weighed = 0.0, 0.0
                for k in range(taps):
                    g = recent(gate + 4 * c, gate_row, begin, t - past + k, gates, past, width)
                    e = math.exp(np.float64(f32(g) + f32(w + 4 * (k * channels + c)) - top))
                    total += e
                    weighed += e * np.float64(f32(recent(x + 4 * c, x_row, begin, t - past + k, xs, past, width)))
                set_f32(out + t * out_row + 4 * c, np.float32(weighed / total))
            for k in range(past):  # upwards: what is still to be read lies above
                set_f32(xs + 4 * k * width, f32(recent(x + 4 * c, x_row, begin, end - past + k, xs, past, width)))
                g = recent(gate + 4 * c, gate_row, begin, end - past + k, gates, past, width)
                set_f32(gates + 4 * k * width, f32(g))


@kernel(writes=("states", "out"))
def scan(
    thread, threads, states, slot_size, sequences, starts, positions, slots, x, x_row, dt, dt_row, a, b, b_row,
    c, c_row, out, out_row, channels, n,
):  # fmt: skip
    """h ← h·exp(dt·a) + dt·x·b, y = h·c for each channel; the state is [slot, channels, n]."""
    for s in range(i64(sequences)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        for channel in range(first(channels, thread, threads), first(channels, thread + 1, threads)):
            h = states + i32(slots + 4 * s) * slot_size + channel * n * 4
            if i32(positions + 4 * begin) == 0:
                clear(h, n)
            for t in range(begin, end):
                step = f32(dt + t * dt_row + 4 * channel)
                push, speed = splat_f32(f32(x + t * x_row + 4 * channel) * step), splat_f32(step)
                total = zero_f32()
                for i in range(0, n, 8):
                    decay = exp8(load_lanes(a + 4 * (channel * n + i), n - i) * speed)
                    added = push * load_lanes(b + t * b_row + 4 * i, n - i)
                    value = fma(load_lanes(h + 4 * i, n - i), decay, added)
                    store_lanes(h + 4 * i, value, n - i)
                    total = fma(value, load_lanes(c + t * c_row + 4 * i, n - i), total)
                set_f32(out + t * out_row + 4 * channel, hsum_f32(total))


@device
def decayed(tile, decay, step, i):
    return load_f32(tile + 32 * i) * splat_f32(f32(decay + step * i))


@device
def answered(tile, k, decay, step, n):
    """k·S·decay for a tile of eight columns: four running sums, so that the additions overlap."""
    a = b = c = d = zero_f32()
    whole = n & ~3
    for i in range(0, whole, 4):
        a = fma(decayed(tile, decay, step, i), splat_f32(f32(k + 4 * i)), a)
        b = fma(decayed(tile, decay, step, i + 1), splat_f32(f32(k + 4 * i + 4)), b)
        c = fma(decayed(tile, decay, step, i + 2), splat_f32(f32(k + 4 * i + 8)), c)
        d = fma(decayed(tile, decay, step, i + 3), splat_f32(f32(k + 4 * i + 12)), d)
    for i in range(whole, n):
        a = fma(decayed(tile, decay, step, i), splat_f32(f32(k + 4 * i)), a)
    return (a + b) + (c + d)


@device
def moved(tile, k, decay, step, new, i):
    row = fma(new, splat_f32(f32(k + 4 * i)), decayed(tile, decay, step, i))
    store_f32(tile + 32 * i, row)
    return row


@device
def move(tile, q, k, decay, step, new, n):
    """S ← S·decay + k⊗new; q·S."""
    a = b = c = d = zero_f32()
    whole = n & ~3
    for i in range(0, whole, 4):
        a = fma(moved(tile, k, decay, step, new, i), splat_f32(f32(q + 4 * i)), a)
        b = fma(moved(tile, k, decay, step, new, i + 1), splat_f32(f32(q + 4 * i + 4)), b)
        c = fma(moved(tile, k, decay, step, new, i + 2), splat_f32(f32(q + 4 * i + 8)), c)
        d = fma(moved(tile, k, decay, step, new, i + 3), splat_f32(f32(q + 4 * i + 12)), d)
    for i in range(whole, n):
        a = fma(moved(tile, k, decay, step, new, i), splat_f32(f32(q + 4 * i)), a)
    return (a + b) + (c + d)


@kernel(writes=("states", "out"))
def linear_attend(
    thread, threads, states, slot_size, sequences, starts, positions, slots, q, q_row, q_head, k, k_row, k_head,
    v, v_row, v_head, decay, decay_row, decay_head, decay_step, beta, beta_row, out, out_row, out_head,
    heads, groups, key_dim, dim, tiled,
):  # fmt: skip
    """Each head's matrix lies in tiles of eight columns, [slot, heads, dim/8, key_dim, 8]; columns do not meet."""
    tiles = (dim + 7) // 8
    for s in range(i64(sequences)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        fresh = i32(positions + 4 * begin) == 0
        for item in range(first(heads * tiles, thread, threads), first(heads * tiles, thread + 1, threads)):
            head, column = item // tiles, item % tiles * 8
            group = head % groups if tiled else head * groups // heads
            tile = states + i32(slots + 4 * s) * slot_size + item * key_dim * 32
            if fresh:
                clear(tile, 8 * key_dim)
            for t in range(begin, end):
                key, fade = k + t * k_row + group * k_head, decay + t * decay_row + head * decay_head
                new = load_lanes(v + t * v_row + head * v_head + 4 * column, dim - column)
                if beta:
                    known = answered(tile, key, fade, decay_step, key_dim)
                    new = (new - known) * splat_f32(f32(beta + t * beta_row + 4 * head))
                y = move(tile, q + t * q_row + group * q_head, key, fade, decay_step, new, key_dim)
                store_lanes(out + t * out_row + head * out_head + 4 * column, y, dim - column)


KERNELS = {"convolve": convolve, "pool": pool, "ngrams": ngrams, "scan": scan, "linear_attend": linear_attend}
