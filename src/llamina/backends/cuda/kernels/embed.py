"""Rows of tables that are plain numbers; `dequantize.rows` has those of blocks."""

import triton
import triton.language as tl

from llamina.backends.cuda.kernels.activations import fragment


@triton.jit
def embed(ids, table, out, gain, width, padded, FRAGMENTS: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = row ids[i] of a table, divided by the gain it was stored with; its columns may be in fragment order."""
    item = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    column = fragment(i) if FRAGMENTS else i
    v = tl.load(table + tl.load(ids + item).to(tl.int64) * padded + column, mask=i < width, other=0.0)
    tl.store(out + item * width + i, v.to(tl.float32) / gain, mask=i < width)
