"""Recording: a forward pass is run once with values that hold nothing, and becomes a flat list of steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from llamina.ops import Attention, State, Step, Value


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The steps of one forward pass. One plan serves every batch: row counts are read when it runs."""

    tokens: Value
    positions: Value
    logits: Value
    steps: tuple[Step, ...]
    states: tuple[State, ...]

    @property
    def vocab(self) -> int:
        return self.logits.size

    @property
    def causal(self) -> bool:
        """Whether a token's outputs depend on those before it alone."""
        return all(params.causal for step in self.steps if isinstance(params := step.attrs.get("params"), Attention))

    def last_uses(self) -> dict[int, int]:
        """Value id → the index of the last step that reads it; the logits outlive the plan."""
        uses = {value.id: i for i, step in enumerate(self.steps) for value in step.inputs}
        return uses | {self.logits.id: len(self.steps)}


class Recorder:
    """A tape that writes steps down."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._ids: Iterator[int] = count()

    def new_id(self) -> int:
        return next(self._ids)

    def emit(self, step: Step) -> None:
        self.steps.append(step)


def record(forward: Callable[[Value, Value], Value]) -> Plan:
    """The plan of `forward(tokens, positions)`, which is run once; raises what the model file raises."""
    tape = Recorder()
    tokens, positions = (Value(tape, tape.new_id(), (), integer=True) for _ in range(2))
    logits = forward(tokens, positions)
    states = dict.fromkeys(state for step in tape.steps for state in step.states)
    return Plan(tokens, positions, logits, tuple(tape.steps), tuple(states))
