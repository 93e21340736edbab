"""What an engine has done so far, counted; and as text for Prometheus."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from llamina.engine.schedule import Slice
from llamina.engine.sequence import Sequence

SECONDS = tuple(base * 10**power for power in range(-3, 3) for base in (1, 2.5, 5))
COUNTS = tuple(2**power for power in range(14))
Labels = Mapping[str, str]


@dataclass(slots=True)
class Histogram:
    """How often values were at most as large as each bound."""

    bounds: tuple[float, ...]
    total: float = 0
    counts: list[int] = field(default_factory=list)  # one more than bounds: what is above them all

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Metrics:
    """Counters and histograms of one engine. `gauges` says what is the case right now."""

    gauges: Callable[[], Mapping[str, float]]
    steps: int = 0
    prompt_tokens: int = 0  # computed, those of prompts
    cached_tokens: int = 0  # of prompts, not computed because others had
    generated_tokens: int = 0
    drafted_tokens: int = 0  # guessed ahead (speculative decoding)
    accepted_tokens: int = 0  # of those, the ones that were right
    preemptions: int = 0
    requests: Counter[str] = field(default_factory=Counter)  # by finish reason
    batch_tokens: Histogram = field(default_factory=lambda: Histogram(COUNTS))
    batch_sequences: Histogram = field(default_factory=lambda: Histogram(COUNTS))
    queue_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    time_to_first_token_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    inter_token_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    request_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def arrive(self, sequence: Sequence) -> None:
        sequence.times.submitted = time.perf_counter()

    def step(self, slices: list[Slice], preempted: int) -> None:
        """A step that is about to be computed."""
        self.preemptions += preempted
        if not slices:
            return
        self.steps += 1
        self.batch_sequences.observe(len(slices))
        self.batch_tokens.observe(sum(s.stop - s.start for s in slices))
        for s in slices:
            self.prompt_tokens += max(0, min(s.stop, len(s.sequence.request.prompt)) - s.start)
            if s.sequence.times.started is None:
                self._start(s.sequence)

    def _start(self, sequence: Sequence) -> None:
        times = sequence.times
        times.started = time.perf_counter()
        self.queue_seconds.observe(times.started - times.submitted)
        self.cached_tokens += sequence.cached or 0

    def token(self, sequence: Sequence) -> None:
        """A token that was made."""
        now, times = time.perf_counter(), sequence.times
        self.generated_tokens += 1
        if times.last is None:
            times.first = now
            self.time_to_first_token_seconds.observe(now - times.submitted)
        else:
            self.inter_token_seconds.observe(now - times.last)
        times.last = now

    def verify(self, drafted: int, accepted: int) -> None:
        """Tokens that were guessed ahead, and how many of them were right."""
        self.drafted_tokens += drafted
        self.accepted_tokens += accepted

    def finish(self, sequence: Sequence) -> None:
        self.requests[sequence.finish_reason or ""] += 1
        self.request_seconds.observe(time.perf_counter() - sequence.times.submitted)

    def distributions(self) -> dict[str, dict[str, float | list[float]]]:
        """The histograms by name, as plain values."""
        return {
            name: {"bounds": list(found.bounds), "counts": list(found.counts), "total": found.total}
            for name in self.__slots__
            if isinstance(found := getattr(self, name), Histogram)
        }

    def text(self, labels: Labels | None = None) -> str:
        """Everything in the text format of Prometheus; `labels` are put on every line."""
        return "".join(f"{line}\n" for line in self._lines(labels or {}))

    def _lines(self, labels: Labels) -> Iterator[str]:
        for name, value in self._counters().items():
            yield from samples(name, "counter", [(labels, value)])
        reasons = ("stop", "length", "cancelled", "error")
        ended = [({**labels, "finish_reason": reason}, self.requests[reason]) for reason in reasons]
        yield from samples("sequences_total", "counter", ended)
        for name, value in self.gauges().items():
            yield from samples(name, "gauge", [(labels, value)])
        for name in self.__slots__:
            if isinstance(found := getattr(self, name), Histogram):
                yield from histograms(name, [(labels, found)])

    def _counters(self) -> dict[str, float]:
        names = ("steps", "prompt_tokens", "cached_tokens", "drafted_tokens", "accepted_tokens", "preemptions")
        told = {f"{name}_total": getattr(self, name) for name in names}
        return told | {"tokens_generated_total": self.generated_tokens}


def samples(name: str, kind: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    """The lines of a counter or a gauge, for each of its labels."""
    yield f"# TYPE llamina_{name} {kind}"
    for labels, value in values:
        yield _line(name, value, labels)


def histograms(name: str, found: Iterable[tuple[Labels, Histogram]]) -> Iterator[str]:
    """The lines of a histogram, for each of its labels."""
    yield f"# TYPE llamina_{name} histogram"
    for labels, histogram in found:
        bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
            yield _line(f"{name}_bucket", count, {**labels, "le": bound})
        yield _line(f"{name}_sum", histogram.total, labels)
        yield _line(f"{name}_count", histogram.count, labels)


def _line(name: str, value: float, labels: Labels) -> str:
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    inside = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    return f"llamina_{name}{{{inside}}} {value}" if inside else f"llamina_{name} {value}"
