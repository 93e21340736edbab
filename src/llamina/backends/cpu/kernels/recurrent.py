"""State-space layers, token by token within each sequence: the result cannot depend on how a prompt is cut."""

import math

import numpy as np

from llamina.backends.cpu.kernels.device import kernel
from llamina.backends.cpu.kernels.memory import f32, i32, i64, set_f32
from llamina.backends.cpu.kernels.work import first, softplus


@kernel
def convolve(
    thread, threads, sequences, starts, positions, slots, x, x_row, w, bias, out_state, out, out_row, channels, taps
):
    """Each channel with its own taps; the state holds the last taps-1 inputs, [slot, taps-1, channels]."""
    low, high = first(channels, thread, threads), first(channels, thread + 1, threads)
    past = taps - 1
    for s in range(i64(sequences)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        state = out_state + i32(slots + 4 * s) * past * channels * 4
        fresh = i32(positions + 4 * begin) == 0
        for c in range(low, high):
            if fresh:
                for k in range(past):
                    set_f32(state + 4 * (k * channels + c), np.float32(0))
            for t in range(begin, end):
                now = f32(x + t * x_row + 4 * c)
                total = np.float32(0)
                for k in range(past):
                    total += f32(state + 4 * (k * channels + c)) * f32(w + 4 * (c * taps + k))
                total += now * f32(w + 4 * (c * taps + past))
                if bias:
                    total += f32(bias + 4 * c)
                set_f32(out + t * out_row + 4 * c, total)
                for k in range(past - 1):
                    set_f32(state + 4 * (k * channels + c), f32(state + 4 * ((k + 1) * channels + c)))
                set_f32(state + 4 * ((past - 1) * channels + c), now)


@kernel
def scan(
    thread, threads, sequences, starts, positions, slots, x, x_row, x_head, dt, dt_row, a, a_width,
    b, b_row, b_head, c, c_row, c_head, out_state, out, out_row, out_head, heads, dim, n, groups,
):  # fmt: skip
    """h ← h·exp(dt·a) + dt·x⊗b, y = h·c for each head; a has one number per head, or one per state element."""
    for s in range(i64(sequences)):
        begin, end = i32(starts + 4 * s), i32(starts + 4 * s + 4)
        fresh = i32(positions + 4 * begin) == 0
        for item in range(first(heads * dim, thread, threads), first(heads * dim, thread + 1, threads)):
            head, d = item // dim, item % dim
            group = head * groups // heads
            h = out_state + (i32(slots + 4 * s) * heads * dim + item) * n * 4
            if fresh:
                for i in range(n):
                    set_f32(h + 4 * i, np.float32(0))
            for t in range(begin, end):
                step = softplus(f32(dt + t * dt_row + 4 * head))
                push = f32(x + t * x_row + head * x_head + 4 * d) * step
                decay = np.float32(math.exp(np.float64(step * f32(a + 4 * head * a_width))))
                total = np.float32(0)
                for i in range(n):
                    if a_width > 1:
                        decay = np.float32(math.exp(np.float64(step * f32(a + 4 * (head * a_width + i)))))
                    value = f32(h + 4 * i) * decay + push * f32(b + t * b_row + group * b_head + 4 * i)
                    set_f32(h + 4 * i, value)
                    total += value * f32(c + t * c_row + group * c_head + 4 * i)
                set_f32(out + t * out_row + head * out_head + 4 * d, total)


KERNELS = {"convolve": convolve, "scan": scan}
