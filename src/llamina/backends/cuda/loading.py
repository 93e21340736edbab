"""Matrices brought to the device: their rows are copied as they are in the file, and laid out there by kernels."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import host
from llamina.backends.base import Progress
from llamina.backends.cuda.device import Device, Launch, launch_of
from llamina.backends.cuda.kernels.layout import GROUP, Layout
from llamina.backends.cuda.kernels.loading import first_row, relay, table_of
from llamina.backends.cuda.memory import Buffer, Ref
from llamina.ops import Weight

CHUNK = 32 << 20  # bytes of rows that are laid out at a time
AHEAD = 64  # matrices that are looked through before their turn comes
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight on the device: its layout, the arrays by name, and what tensor cores' products are divided by."""

    layout: Layout
    arrays: dict[str, Ref]
    gain: float


def layout_of(weights: Sequence[Weight]) -> Layout:
    """That of a matrix, or of one for each expert; several of the same format are one below the other."""
    *experts, rows, columns = weights[0].shape
    layout = Layout.of(weights[0].format.name, rows, columns, experts[0] if experts else 1)
    return replace(layout, rows=sum(w.shape[-2] for w in weights))


def halves(matrix: Matrix) -> tuple[Layout, dict[str, Ref], dict[str, Ref]]:
    """A matrix seen as two of half the rows."""
    layout = replace(matrix.layout, rows=matrix.layout.rows // 2)
    offsets = {name: prod(array.shape) for name, array in layout.arrays.items()}
    return layout, matrix.arrays, {name: ref.at(offsets[name]) for name, ref in matrix.arrays.items()}


def load(device: Device, matrices: Sequence[Sequence[Weight]], progress: Progress | None = None) -> Iterator[Matrix]:
    """Each of these matrices on the device, in order. Raises UnsupportedModel for a format that has no layout."""
    layouts = [layout_of(weights) for weights in matrices]
    if not device.interpreted:
        device.prepare({x.kernel for m, lay in zip(matrices, layouts, strict=True) for x in _example(m, lay)}, progress)
    raw = Ref(Buffer(CHUNK, device.allocate(CHUNK)), 0, "u8")
    tables: dict[str, Ref] = {}
    with ThreadPoolExecutor(host.usable_cores()) as threads:
        waiting, gains = deque(zip(matrices, layouts, strict=True)), deque[Future[float]]()
        for done, (weights, layout) in enumerate(zip(matrices, layouts, strict=True)):
            while waiting and len(gains) < AHEAD:
                gains.append(threads.submit(_gain, *waiting.popleft()))
            if progress:
                progress(f"loading {weights[0].name}", done, len(matrices))
            arrays = {n: _room(device, a.nbytes, a.type) for n, a in layout.arrays.items()}
            gain = gains.popleft().result()
            _lay_out(device, weights, layout, gain, arrays, raw, tables)
            yield Matrix(layout, arrays, gain)
    for ref in (raw, *tables.values()):
        device.free(ref.address)


def _room(device: Device, nbytes: int, type: str) -> Ref:
    return Ref(Buffer(nbytes, device.allocate(nbytes)), 0, type)


def _gain(weights: Sequence[Weight], layout: Layout) -> float:
    """What brings the largest number of all to the size that float16 holds best."""
    return min(replace(layout, rows=w.shape[-2]).gain(_rows(w)) for w in weights)


def _rows(w: Weight) -> Bytes:
    """[rows of all experts, bytes]."""
    count = w.size // w.shape[-1]
    return w.data.reshape(count, w.data.nbytes // count)


def _lay_out(
    device: Device,
    weights: Sequence[Weight],
    layout: Layout,
    gain: float,
    arrays: dict[str, Ref],
    raw: Ref,
    tables: dict[str, Ref],
) -> None:
    if layout.format == "F32" or device.interpreted:
        for name, array in _packed(weights, layout).items():
            device.write(arrays[name].address, array)
        return
    names, table = {"raw": raw, **arrays}, table_of(layout.format)
    if table is not None:
        if layout.format not in tables:
            tables[layout.format] = _room(device, table.nbytes, "u8")
            device.write(tables[layout.format].address, table)
        names["table"] = tables[layout.format]
    for rows, first in _chunks(weights, layout):
        device.write(raw.address, rows)
        device.run(_launches(layout, rows, first, gain, names))


def _packed(weights: Sequence[Weight], layout: Layout) -> dict[str, npt.NDArray[Any]]:
    """The same by NumPy."""
    parts = [replace(layout, rows=w.shape[-2]).pack(_rows(w)) for w in weights]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _chunks(weights: Sequence[Weight], layout: Layout) -> Iterator[tuple[Bytes, int]]:
    """Rows as they are in the file, and which rows of the layout they are."""
    below = 0
    for w in weights:
        source = _rows(w).reshape(layout.experts, w.shape[-2], -1)
        step = max(GROUP, CHUNK // source.shape[2] // GROUP * GROUP)
        for expert in range(layout.experts):
            for start in range(0, w.shape[-2], step):
                yield source[expert, start : start + step], first_row(layout, expert) + below + start
        below += w.shape[-2]


def _launches(layout: Layout, rows: Bytes, first: int, gain: float, names: dict[str, Ref]) -> list[Launch]:
    found = []
    for call in relay(layout, len(rows), first, rows.shape[1], gain):
        args = {key: names[value] if isinstance(value, str) else value for key, value in call.args.items()}
        found.append(launch_of(call.kernel, call.grid, call.warps, call.stages, args, call.constants))
    return found


def _example(weights: Sequence[Weight], layout: Layout) -> list[Launch]:
    """Launches with the kernels that a matrix is laid out by."""
    if layout.format == "F32":
        return []
    nowhere = Buffer(0)
    names = {name: Ref(nowhere, 0, array.type) for name, array in layout.arrays.items()}
    names |= {"raw": Ref(nowhere, 0, "u8"), "table": Ref(nowhere, 0, "u8")}
    return [x for rows, first in _chunks(weights, layout) for x in _launches(layout, rows, first, 1.0, names)]
