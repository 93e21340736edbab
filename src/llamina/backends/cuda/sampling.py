"""Sampling on the device: how tokens are chosen goes there in one block, and what was chosen comes back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.base import CHANGES, TOP_K, Choice
from llamina.backends.cuda.bucket import power
from llamina.backends.cuda.device import Argument, Constant, Device, Graph, Grid, Launch, Mark, launch_of
from llamina.backends.cuda.memory import Buffer, Ref

STAGES = frozenset(("bias", "penalties", "mask", "top_k", "top_p", "min_p", "temperature"))
GROUP, SPAN = 64, 4096  # of `kernels.sampling`
WORDS = 64  # of a mask, for each program
TYPES: dict[str, Any] = {"i32": np.int32, "fp32": np.float32, "fp64": np.float64}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens that are on their way to the host."""

    _ids: npt.NDArray[np.int32]
    _mark: Mark

    def tokens(self) -> list[int]:
        self._mark.wait()
        return [int(token) for token in self._ids]


@dataclass(frozen=True, slots=True)
class Kind:
    """What choosing needs: at most so many rows, which may not be the first ones, draws, changes, masks."""

    rows: int
    listed: bool
    draws: bool
    changes: bool
    masks: bool


class Sampling:
    """For the logits of one program, at most `rows` of them. `ids` are the tokens that were chosen last, by row."""

    def __init__(self, device: Device, logits: Ref, vocab: int, outputs: int, rows: int, count: Ref, step: Ref) -> None:
        """At most `rows` of `outputs` rows are sampled from; `count` and `step` are where these numbers are."""
        self._device, self._logits, self._vocab, self._count, self._step = device, logits, vocab, count, step
        self.rows, self._parts, self._words = rows, -(-vocab // SPAN), -(-vocab // 32)
        self._memory: list[int] = []
        self.ids = self._new(outputs, "i32")
        self._room: dict[str, Ref] = {
            "maxima": self._new(rows * self._parts * (SPAN // GROUP)),
            "best": self._new(rows * self._parts),
            "where": self._new(rows * self._parts, "i32"),
            "groups": self._new(rows * TOP_K, "i32"),
            "found": self._new(rows * TOP_K, "i32"),
        }
        vectors = {"number": "fp64", "count": "i32", "rows": "i32", "top_k": "i32", "top_p": "fp32", "least": "fp32"}
        vectors |= {"temperature": "fp32", "starts": "i32", "places": "i32"}
        self._said = self._block({name: (type, rows + 1) for name, type in vectors.items()})
        changes = {"tokens": "i32", "biases": "fp32", "repeats": "fp32", "penalties": "fp32"}
        self._changes = {name: (type, rows * CHANGES) for name, type in changes.items()}
        self._more: dict[str, _Block] = {}  # changes and masks: seldom needed, and large
        self._answers = device.pinned(2 * 4 * outputs).view(np.int32).reshape(2, outputs)
        self._graphs: dict[Kind, Graph] = {}

    def prepare(self) -> list[Launch]:
        """Launches of all kernels there are but those for changes and masks."""
        kinds = (Kind(1, False, False, False, False), Kind(1, True, False, False, False))
        return [launch for kind in (*kinds, Kind(1, True, True, False, False)) for launch in self._launches(kind)]

    def _new(self, elements: int, type: str = "fp32") -> Ref:
        nbytes = elements * np.dtype(TYPES[type]).itemsize
        self._memory.append(self._device.allocate(nbytes))
        return Ref(Buffer(nbytes, self._memory[-1]), 0, type)

    def _block(self, arrays: dict[str, tuple[str, int]]) -> "_Block":
        block = _Block(self._device, arrays)
        self._memory.append(block.address)
        return block

    def likeliest(self, rows: int) -> list[Launch]:
        """Launches that choose the likeliest token of each row; none if there are more rows than are sampled from."""
        return self._launches(Kind(rows, False, False, False, False)) if rows <= self.rows else []

    def sample(self, choices: Sequence[Choice | None], chosen: bool, step: int) -> Tokens:
        """Begin to choose, see `backends.base.Pending`; the step may have chosen the likeliest tokens already."""
        kind = self._tell(choices)
        if kind.listed or not chosen:
            self._replay(kind)
        return Tokens(self._answers[step & 1, : len(choices)], self._device.mark())

    def _replay(self, kind: Kind) -> None:
        if kind not in self._graphs:
            launches = self._launches(kind)
            self._device.prepare({launch.kernel for launch in launches})
            self._graphs[kind] = self._device.record(launches)
        self._graphs[kind].replay()

    def _tell(self, choices: Sequence[Choice | None]) -> Kind:
        """Begin to copy what is to be done to the device, unless it is the likeliest of every row."""
        rows = [row for row, choice in enumerate(choices) if choice is not None]
        some = [choice for choice in choices if choice is not None]
        draws = any(choice.number is not None for choice in some)
        changes, masks = any(choice.changes for choice in some), any(choice.mask is not None for choice in some)
        listed = draws or changes or masks or len(some) < len(choices)
        kind = Kind(min(power(len(some)), self.rows), listed, draws, changes, masks)
        if not listed:
            return kind
        counts = np.cumsum([0, *(len(choice.changes) for choice in some)])
        masked = np.cumsum([choice.mask is not None for choice in some])
        drawn = [choice if choice.number is not None else Choice(0.0, 0) for choice in some]
        said = {
            "count": [len(some)],
            "rows": rows,
            "top_k": [choice.top_k for choice in drawn],
            "top_p": [choice.top_p for choice in drawn],
            "least": [math.log(choice.min_p) if choice.min_p else -math.inf for choice in drawn],
            "temperature": [choice.temperature for choice in drawn],
            "number": [choice.number for choice in drawn],
            "starts": counts,
            "places": np.where([choice.mask is not None for choice in some], masked - 1, -1),
        }
        self._said.upload(said)
        if changes:
            every = [change for choice in some for change in choice.changes]
            names = ("tokens", "biases", "repeats", "penalties")
            self._large("changes").upload(dict(zip(names, zip(*every, strict=True), strict=True)))
        if masks:
            words = [choice.mask for choice in some if choice.mask is not None]
            self._large("masks").upload({"masks": np.concatenate(words).view(np.int32)})
        return kind

    def _large(self, name: str) -> "_Block":
        if name not in self._more:
            arrays = self._changes if name == "changes" else {"masks": ("i32", self.rows * self._words)}
            self._more[name] = self._block(arrays)
        return self._more[name]

    def _launches(self, kind: Kind) -> list[Launch]:
        said, room = self._said.refs, self._room
        rows: dict[str, Argument] = {"rows": said["rows"] if kind.listed else None}
        rows |= {"count": said["count"] if kind.listed else self._count, "logits": self._logits, "vocab": self._vocab}
        launches = []

        def launch(name: str, grid: Grid, warps: int, args: dict[str, Argument], **constants: Constant) -> None:
            launches.append(launch_of(f"sampling.{name}", grid, warps, 3, {**rows, **args}, constants))

        if kind.changes:
            launch("adjust", (kind.rows, 1, 1), 4, {"starts": said["starts"], **self._large("changes").refs}, BLOCK=128)
        if kind.masks:
            grid = (kind.rows, -(-self._words // WORDS), 1)
            args: dict[str, Argument] = {**self._large("masks").refs, "places": said["places"], "words": self._words}
            launch("mask", grid, 4, args, BLOCK=WORDS)
        listed, parts = int(kind.listed), self._parts
        found: dict[str, Argument] = {name: room[name] for name in ("maxima", "best", "where")} | {"parts": parts}
        early = int(self._device.early)
        launch("peaks", (kind.rows, parts, 1), 4, found, LISTED=listed, EARLY=early)
        names = ("top_k", "top_p", "least", "temperature", "number")
        more: dict[str, Argument] = {name: said[name] if kind.draws else None for name in names}
        more |= {name: room[name] if kind.draws else None for name in ("groups", "found")} | {"ids": self.ids}
        answers = Ref(Buffer(self._answers.nbytes, self._answers.ctypes.data), 0, "i32")
        more |= {"answers": answers, "step": self._step, "distance": self._answers.shape[1]}
        sizes = {"PARTS": power(parts), "GROUPS": power(parts * (SPAN // GROUP))}
        sizes |= {"LISTED": listed, "DRAWS": int(kind.draws), "EARLY": early}
        launch("choose", (kind.rows, 1, 1), 8 if kind.draws else 1, found | more, **sizes)
        return launches

    def close(self) -> None:
        for graph in self._graphs.values():
            graph.close()
        for address in self._memory:
            self._device.free(address)


class _Block:
    """Arrays of the device in one piece of memory, and pinned memory of the same layout, twice."""

    def __init__(self, device: Device, arrays: dict[str, tuple[str, int]]) -> None:
        self._device = device
        self._offsets, size = dict[str, int](), 0
        for name, (type, elements) in arrays.items():
            self._offsets[name] = size
            size += -(-elements * np.dtype(TYPES[type]).itemsize // 64) * 64
        self._types = {name: np.dtype(TYPES[type]) for name, (type, _) in arrays.items()}
        self.address = device.allocate(size)
        whole = Buffer(size, self.address)
        self.refs = {name: Ref(whole, at, arrays[name][0]) for name, at in self._offsets.items()}
        self._staging: list[tuple[npt.NDArray[np.uint8], list[Mark]]] = [(device.pinned(size), []) for _ in range(2)]

    def upload(self, values: dict[str, Any]) -> None:
        """Begin to copy the first elements of each array."""
        memory, marks = self._staging[0]
        self._staging.reverse()
        for mark in marks:
            mark.wait()
        end = 0
        for name, value in values.items():
            array = np.asarray(value, self._types[name])
            start = self._offsets[name]
            memory[start : start + array.nbytes].view(array.dtype)[:] = array
            end = max(end, start + array.nbytes)
        self._device.upload(memory[:end], self.address)
        marks[:] = [self._device.mark()]
