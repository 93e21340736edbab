"""Recording: a forward pass is run once with values that hold nothing, and becomes a flat list of steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
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
    rows: Value | None = None  # embeddings that a batch may give, of plans that take them

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


def record(forward: Callable[..., Value], width: int | None = None) -> Plan:
    """The plan of `forward(tokens, positions)`, which is run once; raises what the model file raises.

    With a width, that of `forward(tokens, positions, rows)`: a batch may give rows of that width in the place of
    embeddings, M-RoPE's positions, and how far ahead tokens attend.
    """
    tape = Recorder()
    tokens, positions = (Value(tape, tape.new_id(), (), integer=True) for _ in range(2))
    rows = Value(tape, tape.new_id(), (width,)) if width is not None else None
    logits = forward(tokens, positions) if rows is None else forward(tokens, positions, rows)
    states = dict.fromkeys(state for step in tape.steps for state in step.states)
    steps = tape.steps if rows is None else [_given(step) for step in tape.steps]
    return Plan(tokens, positions, logits, tuple(steps), tuple(states), rows)


def _given(step: Step) -> Step:
    """RoPE with the batch's three positions, where the model's has axes; attention as far ahead as the batch says."""
    if step.op == "rope" and step.attrs["rope"].axes:
        return replace(step, attrs={**step.attrs, "rotary": True})
    if step.op == "attend" and step.attrs["params"].causal and not step.attrs["params"].strict:
        return replace(step, attrs={**step.attrs, "until": True})
    return step
