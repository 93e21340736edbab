"""Embedding rows in the place of tokens, and M-RoPE's positions, on the GPU by Triton's interpreter."""

from dataclasses import replace

import numpy as np
from plans import error, float_weight

from llamina.backends import Capacity, backend
from llamina.ops import Attention, Rope, Value, attend, embed, flat, given, heads, pick, rope
from llamina.ops.batch import Batch, Span
from llamina.plan import record
from skips import import_peer

import_peer("triton")
WIDTH = 96
RNG = np.random.default_rng(2)
TABLE, ROWS = float_weight("t", RNG.standard_normal((16, WIDTH))), RNG.standard_normal((5, WIDTH)).astype(np.float32)
TURNS = Rope(24, 1e4, axes=(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2))


def forward(tokens: Value, positions: Value, rows: Value) -> Value:
    x = heads(given(embed(tokens, TABLE), rows), 3)
    y = attend(rope(x, TURNS), rope(x, replace(TURNS, neox=False)), x, 0, Attention(0.2))
    return pick(flat(y))


def test_rows_and_their_positions() -> None:
    """Beside a sequence of tokens, then tokens alone in the same program; the next of the sequence counts on."""
    grid = np.array([[0, 1, 2, 2, 2, 2, 2, 3], [0, 1, 2, 2, 3, 3, 4, 5], [0, 1, 2, 3, 4, 2, 3, 5]], np.int32)
    picture = Span([1, 2, 0, 0, 0, 0, 0, 3], 0, [4], 0, range(8), rows=[(2, ROWS)], rotary=grid)
    after = Span([5], 8, [4], 0, [0], rotary=np.full((3, 1), 6, np.int32))
    text = Span([7, 8, 9], 0, [5], 1, range(3))
    found = []
    for name in ("reference", "interpreter"):
        batch = Batch(16, 16, 4, 4, WIDTH)
        program = backend(name).compile(record(forward, WIDTH), batch, Capacity(8, 4, "f32"))
        steps = [[text, picture], [after], [elsewhere(text)]]
        found.append(np.concatenate([program.launch(batch.fill(step)).result().copy() for step in steps]))
        program.close()
    assert error(found[1], found[0]) < 1e-9


def test_rows_attend_both_ways() -> None:
    """Some rows of a prompt to the end of theirs, in one tile and across tiles, beside a sequence of tokens."""
    rows = RNG.standard_normal((40, WIDTH)).astype(np.float32)
    until = np.array([0, 1, *[41] * 40, 42], np.int32)
    axes = np.arange(43, dtype=np.int32)[None].repeat(3, 0)
    picture = Span([1, 2, *[0] * 40, 3], 0, [4, 5, 6], 0, range(43), rows=[(2, rows)], rotary=axes, until=until)
    found = []
    for name in ("reference", "interpreter"):
        batch = Batch(64, 64, 4, 4, WIDTH)
        program = backend(name).compile(record(forward, WIDTH), batch, Capacity(8, 4, "f32"))
        steps = [[picture], [Span([7, 8], 0, [7], 1, range(2)), picture], [picture._replace(until=None)]]
        found.append([program.launch(batch.fill(step)).result().copy() for step in steps])
        program.close()
    assert all(error(got, want) < 1e-9 for want, got in zip(*found, strict=True))
    assert error(found[0][2], found[0][0]) > 1e-3


def elsewhere(span: Span) -> Span:
    """The same tokens in other pages, with the positions that they have anyway."""
    return span._replace(pages=[6], rotary=np.arange(len(span.tokens), dtype=np.int32)[None].repeat(3, 0))
