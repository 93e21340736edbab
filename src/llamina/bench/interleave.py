"""Runs tasks on several engines in turns, so that whatever slows the machine slows them alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from llamina.bench.task import Kind, Task

Tick = Callable[[str], None]


class Runner(Protocol):
    def seconds(self, task: Task, seed: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Timing:
    """The runs of a task by an engine."""

    task: Task
    engine: str
    runs: tuple[float, ...]  # seconds

    @property
    def seconds(self) -> float:
        return median(self.runs)

    @property
    def rate(self) -> float:
        """Tokens per second of all sequences together, by the median run."""
        return self.task.work / self.seconds

    @property
    def spread(self) -> float:
        """Half the difference between the fastest and the slowest run, as a part of the rate."""
        rates = [self.task.work / seconds for seconds in self.runs]
        return (max(rates) - min(rates)) / 2 / self.rate


def race(
    tasks: Sequence[Task], entrants: Mapping[str, Mapping[Kind, Runner]], repeats: int, tick: Tick, warmups: int = 1
) -> list[Timing]:
    """Run each task `repeats` times, each time by all engines one after the other, with the same tokens.

    Each engine has `warmups` runs before.
    """
    timings = []
    for task in tasks:
        runs: dict[str, list[float]] = {name: [] for name in entrants}
        for name, by_kind in entrants.items():
            for i in range(warmups):
                tick(f"{task.name}: {name}, warm-up")
                by_kind[task.kind].seconds(_warm_up(task), repeats + i)
        for i in range(repeats):
            for name, by_kind in entrants.items():
                tick(f"{task.name}: {name}, run {i + 1} of {repeats}")
                runs[name].append(by_kind[task.kind].seconds(task, i))
        timings += [Timing(task, name, tuple(seconds)) for name, seconds in runs.items()]
    return timings


def _warm_up(task: Task) -> Task:
    """The same batch on an empty KV cache; of a generation, two steps."""
    return replace(task, depth=0, tokens=task.tokens if task.kind == "prompt" else min(task.tokens, 2))
