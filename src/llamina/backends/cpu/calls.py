"""The native calls written so far, and the places of the values they pass on."""

from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends.cpu.memory import Buffer, Place, Ref, split_shape
from llamina.backends.cpu.native import Argument, Native, reading, size_of, writing
from llamina.ops import Value, Weight
from llamina.ops.batch import Batch
from llamina.quant import decode


class Calls:
    """`native` grows call by call; `buffers` are the arena's tenants."""

    def __init__(self, batch: Batch) -> None:
        self.native: list[Native] = []
        self.buffers: list[Buffer] = []
        self.keep: list[npt.NDArray[Any]] = []  # constants the kernels point into
        self._batch = batch
        self._places: dict[int, Place] = {}
        self._step = 0

    def _fixed(self, array: npt.NDArray[Any]) -> Ref:
        """Memory that is already there and outlives the program."""
        self.keep.append(array)
        return Ref(Buffer(array.nbytes, array.ctypes.data, own=True))

    def _rows(self, value: Value) -> int:
        return len(self._batch.tokens) if value.rows == "tokens" else len(self._batch.outputs)

    def _new(self, nbytes: int) -> Ref:
        self.buffers.append(Buffer(nbytes))
        return Ref(self.buffers[-1])

    def _output(self, value: Value) -> Place:
        if value.id not in self._places:
            outer, inner = split_shape(value.shape)
            row = 4 * outer * inner
            self._places[value.id] = Place(self._new(row * self._rows(value)), row, 4 * inner, outer, inner)
        return self._places[value.id]

    def _place(self, value: Value) -> Place:
        return self._places[value.id]

    def _constant(self, w: Weight) -> Ref:
        """A small tensor as float32."""
        return self._fixed(np.ascontiguousarray(decode(w.data, w.format, w.shape)))

    def _bytes(self, w: Weight) -> Ref:
        return self._fixed(w.data)

    def _count(self, value: Value) -> int:
        return self._batch.counts.ctypes.data + (0 if value.rows == "tokens" else 8)

    def _emit(self, kernel: str, **args: Argument) -> None:
        self.native.append(Native(kernel, args, self._step))

    def _like(self, place: Place, value: Value) -> Place:
        """A new place of the same shape, contiguous."""
        row = 4 * place.outer * place.inner
        return Place(self._new(row * self._rows(value)), row, 4 * place.inner, place.outer, place.inner)

    def _contiguous(self, value: Value) -> Place:
        """The value's place, copied if it is scattered."""
        place = self._place(value)
        if place.contiguous:
            return place
        copy = self._like(place, value)
        self._copy(value, place, copy)
        self._places[value.id] = copy
        return copy

    def _copy(self, value: Value, source: Place, target: Place) -> None:
        self._emit(
            "copy", count=self._count(value), **reading(source), **writing(target), **size_of(target), constant=0.0
        )
