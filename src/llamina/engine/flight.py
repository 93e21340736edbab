"""A step that was launched: who is in it, and what comes of it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from llamina.backends import Choice, Pending, Program, Sampled
from llamina.cache import Lease, Pages
from llamina.engine.runner.programs import Kind, computed
from llamina.engine.schedule import Slice
from llamina.engine.sequence import Sequence
from llamina.ops.batch import Batch, Span

Rows = npt.NDArray[np.float32]
NOTHING: Rows = np.zeros((0, 0), np.float32)


@dataclass(slots=True)
class Flight:
    """What a slice brings is a token that the device has chosen, or rows of outputs for the host to look at."""

    slices: list[Slice]
    tokens: int = 0
    begun: float = field(default_factory=time.perf_counter)
    _leases: dict[Sequence, Lease | None] = field(init=False)
    _rows: dict[Sequence, Rows] = field(default_factory=dict)
    _places: dict[Sequence, int] = field(default_factory=dict)  # in `_sampled`
    _sampled: Sampled | None = None

    def __post_init__(self) -> None:
        self._leases = {s.sequence: s.sequence.lease for s in self.slices}

    def launch(self, program: Program, batch: Batch, slices: list[Slice]) -> None:
        """Begin to compute these slices, which the batch holds. Waits if the host must look at their outputs."""
        pending = program.launch(batch)
        self.tokens += batch.n_tokens
        ends = [*accumulate(len(s.outputs) for s in slices)]
        choices: list[Choice | None] = [None] * batch.n_outputs
        places: dict[Sequence, int] = {}
        for s, end in zip(slices, ends, strict=True):
            if program.stages and s.outputs and _samples(program, s):
                choices[end - 1] = s.sequence.choice()
                places[s.sequence] = end - 1
        if places:  # of one program at most: others give what is read
            self._sampled, self._places = pending.sample(choices), places
        taken = self._hand_over(pending, slices, ends)
        if not program.stages or batch.n_outputs > len(places) + taken:
            rows = pending.result()
            found = {s.sequence: rows[end - len(s.outputs) : end] for s, end in zip(slices, ends, strict=True)}
            self._rows = found | self._rows

    def _hand_over(self, pending: Pending, slices: list[Slice], ends: list[int]) -> int:
        """Give outputs to who takes them where they are, if that is a device; how many these were."""
        takers = [(s, end) for s, end in zip(slices, ends, strict=True) if s.sequence.sink is not None and s.outputs]
        array = pending.on_device() if takers else None
        if array is None:
            return 0
        for s, end in takers:
            assert s.sequence.sink is not None
            self._rows[s.sequence] = s.sequence.sink(array, end - len(s.outputs), end)
        return sum(len(s.outputs) for s, _ in takers)

    @property
    def read(self) -> bool:
        """Whether the host looks at outputs, which the next step's may overwrite."""
        return bool(self._rows)

    @property
    def waits(self) -> bool:
        """Whether it has results that are waited for."""
        return self.read or self._sampled is not None

    def chooses(self, sequence: Sequence) -> bool:
        """Whether the device samples for this sequence."""
        return sequence in self._places

    def span(self, s: Slice, pages: Pages) -> Span:
        """A slice of the step after this one: the token that this one is sampling is told by its place."""
        span = span_of(s, pages)
        return span._replace(tokens=[-1 - self._places[s.sequence]]) if s.start == len(s.sequence.known) else span

    def leased(self) -> list[Slice]:
        """The slices of sequences that have not ended or lost their pages since."""
        return [s for s in self.slices if self._leased(s)]

    def _leased(self, s: Slice) -> bool:
        return s.sequence.lease is not None and s.sequence.lease is self._leases[s.sequence]

    def land(self) -> Iterator[tuple[Slice, Rows | int]]:
        """Wait, and tell what each slice brings, unless its sequence has ended or lost its pages meanwhile."""
        tokens = self._sampled.tokens() if self._sampled is not None else []
        return self._brought(tokens)

    def _brought(self, tokens: list[int]) -> Iterator[tuple[Slice, Rows | int]]:
        for s in self.slices:
            if self._leased(s):  # looked at one by one: what one brings may end another
                place = self._places.get(s.sequence)
                yield s, self._rows.get(s.sequence, NOTHING) if place is None else tokens[place]


def span_of(s: Slice, pages: Pages) -> Span:
    sequence, lease = s.sequence, s.sequence.lease
    assert lease is not None
    tokens = sequence.known[s.start : s.stop] + sequence.drafting.tokens[: s.drafts]
    span = Span(tokens, s.start, lease.pages, lease.slot, s.outputs, sequence.applied, pages.window_pages(lease))
    if (layout := sequence.layout) is None:
        return span
    known = [max(token, 0) for token in tokens]
    rows, rotary = layout.rows(s.start, s.stop), layout.positions(s.start, s.stop)
    return span._replace(tokens=known, rows=rows, rotary=rotary, until=layout.until(s.start, s.stop))


def kind_of(s: Slice, span: Span) -> Kind:
    """The kind of program that computes it."""
    return Kind(computed(s.sequence.request.reading), span.embedded)


def _samples(program: Program, s: Slice) -> bool:
    """Whether a token is sampled after this slice, and a program can do so."""
    sequence, request = s.sequence, s.sequence.request
    if s.drafts or s.stop != sequence.length or sequence.sampler is None or sequence.layout is not None:
        return False
    read = (request.reads, request.logprobs, request.prompt_logprobs)
    return read == (None, None, None) and sequence.sampler.handover.stages <= program.stages
