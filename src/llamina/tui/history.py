"""From counters to numbers over time: rates between snapshots, percentiles and shares of the last half minute.

The dashboard of the server's page has the same in `history.js`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from llamina.repl.server_events import Snapshot

KEPT = 300  # snapshots
WINDOW = 30  # seconds that percentiles look back
Stats = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of a moment. None where nobody knows."""

    generated: float | None = None  # tokens per second
    prompt: float | None = None  # tokens per second, computed
    running: float | None = None  # requests
    waiting: float | None = None
    batch: float | None = None  # sequences of a step
    pages: float | None = None  # of the KV cache in use, percent
    kept: float | None = None  # of the KV cache, for prefixes, percent
    first_median: float | None = None  # seconds to the first token
    first_slow: float | None = None
    each_median: float | None = None  # seconds from a token to the next
    each_slow: float | None = None


def percentile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The value below which a share of a histogram's observations is; None if there are none."""
    wanted, before = share * sum(counts), 0
    if not wanted:
        return None
    for count, (low, high) in zip(counts, pairwise([0.0, *bounds, bounds[-1]]), strict=True):
        if before + count >= wanted:
            return low + (high - low) * (wanted - before) / count
        before += count
    return bounds[-1]


def combined(stats: Sequence[Stats]) -> Stats:
    """Models' statistics as if they were one model's. Bounds of histograms are the same in all."""
    if len(stats) == 1:
        return stats[0]

    def merged(values: Sequence[Any]) -> Any:
        if isinstance(values[0], Mapping):
            names = dict.fromkeys(name for value in values for name in value)
            return {name: _bounds(values, name) or merged([v[name] for v in values if name in v]) for name in names}
        if isinstance(values[0], list):
            return [sum(column) for column in zip(*values, strict=True)]
        return sum(value or 0 for value in values)

    found: Stats = merged(stats)
    return found


def _bounds(values: Sequence[Any], name: str) -> Any:
    return values[0]["bounds"] if name == "bounds" else None


class History:
    """Points over time, of one model or of several together."""

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, Stats]] = deque(maxlen=KEPT)
        self.points: deque[Point] = deque(maxlen=KEPT)

    def add(self, snapshot: Snapshot, model: str | None = None) -> None:
        """Take the figures of one model, or of all of them; a snapshot without any adds an empty point."""
        chosen = [told for id, told in snapshot["models"].items() if model in (None, id) and "stats" in told]
        if not chosen:
            self.points.append(Point())
            return
        stats = combined([told["stats"] for told in chosen])
        if self._snapshots and stats["steps"] < self._snapshots[-1][1]["steps"]:
            self._snapshots.clear()  # a model was loaded again, and counts from 0
        states = [sequence["state"] for told in chosen for sequence in told["sequences"]]
        self.points.append(self._point(snapshot["time"], stats, states))
        self._snapshots.append((snapshot["time"], stats))

    def _point(self, time: float, stats: Stats, states: Sequence[str]) -> Point:
        before_time, before = self._snapshots[-1] if self._snapshots else (time, stats)
        long = next((old for then, old in self._snapshots if time - then <= WINDOW), stats)
        seconds = time - before_time
        steps, total = _since(stats, before, "batch_sequences")
        gauges = stats["gauges"]
        first, each = (_since(stats, long, f"{name}_seconds")[0] for name in ("time_to_first_token", "inter_token"))
        bounds = stats["histograms"]["inter_token_seconds"]["bounds"]
        return Point(
            generated=(stats["generated_tokens"] - before["generated_tokens"]) / seconds if seconds > 0 else 0,
            prompt=(stats["prompt_tokens"] - before["prompt_tokens"]) / seconds if seconds > 0 else 0,
            running=states.count("running"),
            waiting=states.count("waiting"),
            batch=total / sum(steps) if sum(steps) else 0,
            pages=100 * gauges["pages_used"] / gauges["pages"] if gauges["pages"] else None,
            kept=100 * gauges["pages_kept"] / gauges["pages"] if gauges["pages"] else None,
            first_median=percentile(bounds, first, 0.5),
            first_slow=percentile(bounds, first, 0.95),
            each_median=percentile(bounds, each, 0.5),
            each_slow=percentile(bounds, each, 0.95),
        )


def _since(now: Stats, then: Stats, name: str) -> tuple[list[int], float]:
    """What a histogram has seen between two snapshots: counts and their total."""
    a, b = now["histograms"][name], then["histograms"][name]
    return [x - y for x, y in zip(a["counts"], b["counts"], strict=True)], a["total"] - b["total"]
