"""The data of one step: a flat list of tokens of any mixture of sequences, in buffers of fixed addresses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

PAGE = 16  # tokens whose keys and values lie together
ADAPTERS = 64  # slots of adapters, and the most that one sequence can use


@dataclass(frozen=True, slots=True)
class Applied:
    """An adapter that a sequence uses."""

    slot: int
    scale: float
    start: int = 0  # the position from which it acts


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one sequence: where they stand, the pages they live in, which outputs are wanted."""

    tokens: Sequence[int]
    position: int  # of the first token
    pages: Sequence[int]  # all pages of the sequence, from position 0
    slot: int  # of its recurrent states
    outputs: Sequence[int] = ()  # offsets into `tokens`
    adapters: Sequence[Applied] = ()  # in the order in which they are added
    near: Sequence[int] = ()  # where windowed layers have the last of the pages, if they have places of their own


class Batch:
    """Kernels hold the addresses of these arrays, so they are filled, never replaced."""

    def __init__(self, max_tokens: int, max_outputs: int, max_sequences: int, max_pages: int) -> None:
        self.tokens = np.zeros(max_tokens, np.int32)
        self.positions = np.zeros(max_tokens, np.int32)
        self.sequences = np.zeros(max_tokens, np.int32)  # token → row of `tables`
        self.outputs = np.zeros(max_outputs, np.int32)  # rows of wanted tokens
        self.tables = np.zeros((max_sequences, max_pages), np.int32)  # the pages of each sequence
        self.near_tables = np.zeros_like(self.tables)  # of windowed layers, as far as these see
        self.slots = np.zeros(max_sequences, np.int32)
        self.starts = np.zeros(max_sequences + 1, np.int32)  # first token of each sequence
        self.counts = np.zeros(3, np.int64)  # tokens, outputs, sequences
        self.adapter_starts = np.zeros(max_sequences + 1, np.int32)  # first of each sequence in what follows
        self.adapter_slots = np.zeros(max_sequences * ADAPTERS, np.int32)
        self.adapter_scales = np.zeros(max_sequences * ADAPTERS, np.float32)
        self.adapter_positions = np.zeros(max_sequences * ADAPTERS, np.int32)  # from which they act

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
        """Slots and scales of the adapters that act on a token."""
        sequence = self.sequences[token]
        for i in range(self.adapter_starts[sequence], self.adapter_starts[sequence + 1]):
            if self.positions[token] >= self.adapter_positions[i]:
                yield int(self.adapter_slots[i]), self.adapter_scales[i]

    def fill(self, spans: Sequence[Span]) -> "Batch":
        """Lay the spans out one after the other."""
        row = wanted = used = 0
        for i, span in enumerate(spans):
            n = len(span.tokens)
            self.tokens[row : row + n] = span.tokens
            self.positions[row : row + n] = np.arange(span.position, span.position + n)
            self.sequences[row : row + n] = i
            self.tables[i, : len(span.pages)] = span.pages
            self.near_tables[i, len(span.pages) - len(span.near) : len(span.pages)] = span.near
            self.slots[i], self.starts[i] = span.slot, row
            self.outputs[wanted : wanted + len(span.outputs)] = [row + o for o in span.outputs]
            row, wanted = row + n, wanted + len(span.outputs)
            for adapter in span.adapters:
                self.adapter_slots[used], self.adapter_scales[used] = adapter.slot, adapter.scale
                self.adapter_positions[used] = adapter.start
                used += 1
            self.adapter_starts[i + 1] = used
        self.starts[len(spans)] = row
        self.counts[:] = row, wanted, len(spans)
        return self
