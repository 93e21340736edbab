"""What a model can be asked for, each by a plan of its own; they share states and adapters."""

from collections.abc import Callable, Iterator, Mapping

from llamina.backends import Program
from llamina.engine.adapters import Adapters
from llamina.engine.request import Reading
from llamina.errors import RequestError
from llamina.models import Decoder
from llamina.ops import LowRank
from llamina.plan import Plan, adapt, record

Compile = Callable[[Plan, Program | None], Program]


class Programs:
    """`main` is that of the forward pass. What is beside it is recorded and compiled when it is first asked for."""

    def __init__(self, model: Decoder, plan: Plan, adapters: Adapters, compile: Compile) -> None:
        self._model, self._adapters, self._compile_plan = model, adapters, compile
        self.main = compile(plan, None)
        self._made: dict[Reading, Program] = {"hidden" if model.headless else "logits": self.main}

    def __iter__(self) -> Iterator[Program]:
        return iter(self._made.values())

    def kinds(self) -> list[Reading]:
        return list(self._made)

    def __getitem__(self, kind: Reading) -> Program:
        return self._made[kind]

    def prepare(self, reading: Reading) -> None:
        """Have what computes it."""
        kind = computed(reading)
        if kind in self._made:
            return
        if self._model.headless and kind == "logits":
            raise RequestError("the model has no output matrix: it embeds text and writes none")
        self._made[kind] = self._compile(self._plan(kind, self._adapters.matrices))

    def make_places(self, matrices: frozenset[str]) -> Plan:
        """Compile all again, with a place for adapters beside these matrices; states stay as they are."""
        before, plans = self._made, {kind: self._plan(kind, matrices) for kind in self._made}
        self._made = {kind: self._compile(plan) for kind, plan in plans.items()}
        for program in before.values():
            program.close()
        self._adapters.matrices, self.main = matrices, next(iter(self._made.values()))
        return next(iter(plans.values()))

    def _plan(self, kind: Reading, matrices: frozenset[str]) -> Plan:
        if kind == next(iter(self._made)):
            return self._adapters.plan(matrices)
        return adapt(record(self._model.hidden if kind == "hidden" else self._model.rank), matrices)

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
    """What the model computes for it."""
    return "logits" if reading == "logprobs" else reading
