"""What follows products and is computed with them: biases, and values that are added."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llamina.backends.cuda.kernels.calls import Call
from llamina.backends.cuda.lowering.calls import Calls
from llamina.backends.cuda.memory import Place, Ref
from llamina.ops import Step, Value, Weight


def run(calls: Calls, call: Call, names: dict[str, Ref]) -> None:
    """A call of the products' own, its names put in."""
    args = {key: names[value] if isinstance(value, str) else value for key, value in call.args.items()}
    calls.launch(call.kernel, call.grid, call.warps, call.stages, args, call.constants)


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a product's sum goes, and what is added to it by which steps of the plan."""

    out: Value
    bias: Weight | None = None
    add: Place | None = None
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Products:
    """Products of one vector with several matrices of a format, which are one; or a single one."""

    group: tuple[int, ...]  # steps of the plan
    weights: list[Weight]
    endings: list[Ending]

    @property
    def names(self) -> dict[str, Ref]:
        add = self.endings[0].add
        return {"add": add.ref} if add else {}

    @property
    def biased(self) -> bool:
        return self.endings[0].bias is not None

    def bias(self, calls: Calls) -> Ref:
        return calls.shared.joined([ending.bias for ending in self.endings if ending.bias])

    def finish(self, calls: Calls) -> None:
        """The steps of the plan that it computes are done."""
        calls.done.update(self.group, *(ending.steps for ending in self.endings))

    def out(self, calls: Calls) -> Ref:
        """Where to write what comes of it: all rows side by side, and each value knows its own."""
        if len(self.endings) == 1:
            return calls.output(self.endings[0].out).ref
        width, at = sum(ending.out.size for ending in self.endings), 0
        out = calls.new(width * calls.rows(self.endings[0].out))
        for ending in self.endings:
            calls.places[ending.out.id] = Place(out.at(at), width, ending.out.size, 1, ending.out.size)
            at += ending.out.size
        return out


def products_at(calls: Calls, index: int) -> Products:
    """What is computed together with the product that is a step of the plan."""
    group = calls.readers.groups.get(index, (index,))
    steps = [calls.readers.steps[i] for i in group]
    endings = [_ending(calls, step) for step in steps]
    if len(steps) > 1 and not all(ending.bias and not ending.add for ending in endings):
        endings = [Ending(step.outputs[0]) for step in steps]
    return Products(group, [step.weights[0] for step in steps], endings)


def without_endings(products: Products, steps: Sequence[Step]) -> Products:
    """The same with what follows left to others."""
    return replace(products, endings=[Ending(steps[i].outputs[0]) for i in products.group])


def _ending(calls: Calls, step: Step) -> Ending:
    """The additions right behind a product that nobody else sees."""
    found = Ending(step.outputs[0])
    while (index := calls.readers.only(found.out)) is not None and len(found.out.shape) == 1 and not found.add:
        following = calls.readers.steps[index]
        steps = (*found.steps, index)
        if following.op != "add":
            break
        if following.weights:
            if found.bias or following.weights[0].shape != found.out.shape:
                break
            found = replace(found, out=following.outputs[0], bias=following.weights[0], steps=steps)
        elif add := _other(calls, following, found.out):
            found = replace(found, out=following.outputs[0], add=add, steps=steps)
        else:
            break
    return found


def _other(calls: Calls, step: Step, value: Value) -> Place | None:
    """What a step adds to a value, if it is there already and lies as a product's result does."""
    other = step.inputs[0] if step.inputs[1] is value else step.inputs[1]
    place = calls.places.get(other.id)
    return place if place and other.shape == value.shape and place.row == place.width else None
