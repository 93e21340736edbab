"""The batch of a step, from memory of the host that the device reads by itself."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.early import begin


@triton.jit
def fetch(host, distance, state, inputs, ids, first_token, tokens, HEADER: tl.constexpr, BLOCK: tl.constexpr,
          EARLY: tl.constexpr):  # fmt: skip
    """Grid (words / BLOCK): the next of two blocks of the host, `distance` words apart, to `inputs`.

    A block begins with HEADER words, the first of which is the step's number. `state` is the number of the last step
    and a count of programs. The token -1 - i becomes the one that was chosen from row i. Both blocks are read, so that
    nothing waits for the host's memory twice.
    """
    begin(EARLY)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(host, cache_modifier=".cv")
    second = tl.load(host + distance, cache_modifier=".cv")
    a = tl.load(host + HEADER + at, cache_modifier=".cv")
    b = tl.load(host + distance + HEADER + at, cache_modifier=".cv")
    last = tl.load(state)
    first, second = first - last, second - last  # numbers may overflow, their differences do not
    other = (first <= 0) | ((second > 0) & (second < first))  # the host may have filled the one after it already
    value = tl.where(other, b, a)
    chosen = (at >= first_token) & (at < first_token + tokens) & (value < 0)
    value = tl.where(chosen, tl.maximum(tl.load(ids - 1 - value, mask=chosen, other=0), 0), value)
    tl.store(inputs + at, value)
    if tl.atomic_add(state + 1, 1) == tl.num_programs(0) - 1:  # all have read the state
        tl.store(state + 1, 0)
        tl.store(state, last + tl.where(other, second, first))
