"""What a model can be asked for, each kind of output by a plan of its own; they share states and adapters."""

from collections.abc import Callable, Iterator, Mapping
from threading import RLock
from typing import NamedTuple

from llamina.backends import Program
from llamina.engine.request import Reading
from llamina.engine.runner.adapters import Adapters
from llamina.errors import RequestError
from llamina.models import Decoder
from llamina.ops import LowRank
from llamina.plan import Plan, adapt, record

Compile = Callable[[Plan, Program | None], Program]


class Kind(NamedTuple):
    """What a program computes, and whether its batches may have rows in the place of tokens."""

    reading: Reading
    embedded: bool = False


class Programs:
    """`main` is that of the forward pass. Others are recorded and compiled when they are first asked for."""

    def __init__(self, model: Decoder, plan: Plan, adapters: Adapters, compile: Compile, lock: RLock) -> None:  # type: ignore[valid-type]
        self._model, self._adapters, self._compile_plan = model, adapters, compile
        self._lock = lock
        self.main = compile(plan, None)
        self._compiled: dict[Kind, Program] = {Kind("hidden" if model.headless else "logits"): self.main}

    def __iter__(self) -> Iterator[Program]:
        return iter(self._compiled.values())

    def __getitem__(self, kind: Kind) -> Program:
        return self._compiled[kind]

    def prepare(self, reading: Reading, embedded: bool = False) -> None:
        """Have the programs that compute it; for any thread. Raises RequestError if the model cannot."""
        if embedded:  # tokens alone are computed by the other program
            self.prepare(reading)
        kind = Kind(computed(reading), embedded)
        if kind in self._compiled:
            return
        if self._model.headless and kind.reading == "logits":
            raise RequestError("the model has no output matrix: it embeds text and writes none")
        with self._lock:
            if kind not in self._compiled:
                self._compiled[kind] = self._compile(self._plan(kind, self._adapters.matrices))

    def adapted(self, matrices: frozenset[str]) -> dict[Kind, Program]:
        """All programs compiled again with a place for adapters beside these matrices; states are shared."""
        return {kind: self._compile(self._plan(kind, matrices)) for kind in self._compiled}

    def replace(self, compiled: dict[Kind, Program]) -> None:
        """Go on with these programs; between two steps."""
        before, self._compiled = self._compiled, compiled
        self.main = next(iter(compiled.values()))
        for program in before.values():
            program.close()

    def _plan(self, kind: Kind, matrices: frozenset[str]) -> Plan:
        if kind == next(iter(self._compiled)):
            return self._adapters.plan(matrices)
        model = self._model
        forward = {"logits": model.forward, "hidden": model.hidden, "rank": model.rank}[kind.reading]
        return adapt(record(forward, model.row_width if kind.embedded else None), matrices)

    def _compile(self, plan: Plan) -> Program:
        program = self._compile_plan(plan, self.main)
        for slot, pairs in self._adapters.slots().items():
            program.adapt(slot, pairs)
        return program

    def adapt(self, slot: int, pairs: Mapping[str, LowRank]) -> None:
        """Put an adapter into a slot; no pairs empty it."""
        for program in self:
            program.adapt(slot, pairs)

    def close(self) -> None:
        for program in self:
            program.close()


def computed(reading: Reading) -> Reading:
    """The kind of output that is computed for it."""
    return "logits" if reading == "logprobs" else reading
