"""The data of one step: a flat list of tokens of any mixture of sequences, in buffers of fixed addresses."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

PAGE = 16  # tokens whose keys and values lie together
ADAPTERS = 64  # slots of adapters, and the most that one sequence can use


@dataclass(frozen=True, slots=True)
class Applied:
    """An adapter that a sequence uses."""

    slot: int
    scale: float
    start: int = 0  # the position from which it applies


class Span(NamedTuple):
    """Consecutive tokens of one sequence: where they stand, the pages they live in, which outputs are wanted.

    On a device that samples, the token -1 - i is the one that was chosen from output i of the step before.
    """

    tokens: Sequence[int]
    position: int  # of the first token
    pages: Sequence[int]  # all pages of the sequence, from position 0
    slot: int  # of its recurrent states
    outputs: Sequence[int] = ()  # offsets into `tokens`
    adapters: Sequence[Applied] = ()  # in the order in which they are added
    window_pages: Sequence[int] = ()  # of the last of the pages, if sliding-window layers have a pool of their own
    rows: Sequence[tuple[int, npt.NDArray[np.float32]]] = ()  # in the place of tokens' embeddings, with their offsets
    rotary: npt.NDArray[np.int32] | None = None  # M-RoPE's positions [3, tokens], where they are not the tokens' own
    until: npt.NDArray[np.int32] | None = None  # the last position that each token attends to, where not its own
    since: npt.NDArray[np.int32] | None = None  # the first, in layers that ask for it

    @property
    def embedded(self) -> bool:
        """Whether it needs a plan with rows."""
        return bool(self.rows) or self.rotary is not None


class Batch:
    """Kernels hold the addresses of these arrays, so they are filled, never replaced."""

    def __init__(self, max_tokens: int, max_outputs: int, max_sequences: int, max_pages: int, width: int = 0) -> None:
        self.tokens = np.zeros(max_tokens, np.int32)
        self.positions = np.zeros(max_tokens, np.int32)
        self.rows = np.zeros((max_tokens, width), np.float32)  # embeddings that are given, where `given` is 1
        self.given = np.zeros(max_tokens, np.int32)
        self.rotary = np.zeros((3, max_tokens), np.int32)  # M-RoPE's positions
        self.until = np.zeros(max_tokens, np.int32)  # the last position attended to
        self.since = np.zeros(max_tokens, np.int32)  # the first in `bounded` layers; these five for plans with rows
        self.sequences = np.zeros(max_tokens, np.int32)  # token → row of `tables`
        self.outputs = np.zeros(max_outputs, np.int32)  # rows of wanted tokens
        self.tables = np.zeros((max_sequences, max_pages), np.int32)  # the pages of each sequence
        self.window_tables = np.zeros_like(self.tables)  # the same for sliding-window layers, as far as these see
        self.slots = np.zeros(max_sequences, np.int32)
        self.starts = np.zeros(max_sequences + 1, np.int32)  # first token of each sequence
        self.counts = np.zeros(3, np.int64)  # tokens, outputs, sequences
        self.adapter_starts = np.zeros(max_sequences + 1, np.int32)  # first of each sequence in what follows
        self.adapter_slots = np.zeros(max_sequences * ADAPTERS, np.int32)
        self.adapter_scales = np.zeros(max_sequences * ADAPTERS, np.float32)
        self.adapter_positions = np.zeros(max_sequences * ADAPTERS, np.int32)  # from which they apply

    def with_rows(self, width: int) -> "Batch":
        """The same batch, filled with this one, but for rows of its own: what another program has computed."""
        other = copy(self)
        other.rows = np.zeros((len(self.tokens), width), np.float32)
        return other

    @property
    def n_tokens(self) -> int:
        return int(self.counts[0])

    @property
    def n_outputs(self) -> int:
        return int(self.counts[1])

    @property
    def n_sequences(self) -> int:
        return int(self.counts[2])

    def applied(self, token: int) -> Iterator[tuple[int, np.float32]]:
        """Slots and scales of the adapters that apply to a token."""
        sequence = self.sequences[token]
        for i in range(self.adapter_starts[sequence], self.adapter_starts[sequence + 1]):
            if self.positions[token] >= self.adapter_positions[i]:
                yield int(self.adapter_slots[i]), self.adapter_scales[i]

    def fill(self, spans: Sequence[Span]) -> "Batch":
        """Lay the spans out one after the other; returns the batch itself."""
        starts, ends = [0], [0]  # of the spans, and of their adapters
        tokens: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        outputs: list[int] = []
        adapters: list[Applied] = []
        for i, span in enumerate(spans):
            n, row = len(span.tokens), len(tokens)
            tokens += span.tokens
            positions += range(span.position, span.position + n)
            sequences += [i] * n
            outputs += [row + o for o in span.outputs]
            adapters += span.adapters
            starts.append(len(tokens))
            ends.append(len(adapters))
            self.tables[i, : len(span.pages)] = span.pages
            self.window_tables[i, len(span.pages) - len(span.window_pages) : len(span.pages)] = span.window_pages
        self.tokens[: len(tokens)] = tokens
        self.positions[: len(tokens)] = positions
        self.sequences[: len(tokens)] = sequences
        self.outputs[: len(outputs)] = outputs
        self.slots[: len(spans)] = [span.slot for span in spans]
        self.starts[: len(starts)] = starts
        self.adapter_starts[: len(ends)] = ends
        self.adapter_slots[: len(adapters)] = [a.slot for a in adapters]
        self.adapter_scales[: len(adapters)] = [a.scale for a in adapters]
        self.adapter_positions[: len(adapters)] = [a.start for a in adapters]
        self.counts[:] = len(tokens), len(outputs), len(spans)
        if any(span.embedded for span in spans):
            self._fill_rows(spans, len(tokens))
        return self

    def _fill_rows(self, spans: Sequence[Span], n: int) -> None:
        self.given[:n] = 0
        self.rotary[:, :n] = self.positions[:n]
        self.until[:n] = self.positions[:n]
        self.since[:n] = 0
        self.rows[:n] = 0.0
        for start, span in zip(self.starts, spans, strict=False):
            for offset, rows in span.rows:
                at = slice(start + offset, start + offset + len(rows))
                self.rows[at], self.given[at] = rows, 1
            if span.rotary is not None:
                self.rotary[:, start : start + len(span.tokens)] = span.rotary
            if span.until is not None:
                self.until[start : start + len(span.tokens)] = span.until
            if span.since is not None:
                self.since[start : start + len(span.tokens)] = span.since
