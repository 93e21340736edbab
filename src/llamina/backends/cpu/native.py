"""A kernel call as the lowering writes it down: names and places, not yet addresses."""

from dataclasses import dataclass

from llamina.backends.cpu.memory import Buffer, Place, Ref

Argument = int | float | Ref


@dataclass(frozen=True, slots=True)
class Native:
    """One kernel call. Arguments whose names begin with `out` are written, all other places are read."""

    kernel: str
    args: dict[str, Argument]
    step: int  # the plan's step it belongs to

    @property
    def writes(self) -> list[Buffer]:
        return [a.buffer for name, a in self.args.items() if isinstance(a, Ref) and name.startswith("out")]

    @property
    def reads(self) -> list[Buffer]:
        return [a.buffer for name, a in self.args.items() if isinstance(a, Ref) and not name.startswith("out")]


def reading(x: Place) -> dict[str, Argument]:
    return {"x": x.ref, "x_row": x.row, "x_head": x.head}


def writing(out: Place) -> dict[str, Argument]:
    return {"out": out.ref, "out_row": out.row, "out_head": out.head}


def size_of(out: Place) -> dict[str, Argument]:
    return {"outer": out.outer, "inner": out.inner}
