"""The memory of states as kernels want them, and its way to the canonical layout and back.

One head's page holds PAGE positions. Keys lie as [dim, PAGE], so that a register holds one element of eight keys;
values as [PAGE, dim]; dim is padded to whole registers. In quantized caches a block of keys is 16 float16 scales, one
per position, then its integers; a row of values is its integers, then a float16 scale per block. Recurrent states lie
as they are, but those of `linear_attend` in tiles of eight columns.
"""

import mmap
from math import prod

import numpy as np

from llamina.backends.base import Bytes, Capacity, Tensor, tensors
from llamina.backends.cpu.layout import page_bytes
from llamina.backends.cpu.runtime.arena import Buffer, Ref
from llamina.backends.kv_types import FLOATS
from llamina.backends.states import Array, HostStates, Stored
from llamina.errors import CapacityError
from llamina.ops import State
from llamina.ops.batch import PAGE
from llamina.plan import Plan

SLACK = 64  # bytes that kernels may read past the end


def zeros(nbytes: int) -> Bytes:
    """Zeroed memory that becomes resident only where it is touched. Raises CapacityError if there is none."""
    try:
        block = mmap.mmap(-1, max(nbytes, 1))
    except (OSError, OverflowError) as error:
        raise CapacityError(
            f"{nbytes} bytes of memory are not to be had: load the model with a smaller context"
        ) from error
    return np.frombuffer(block, np.uint8)[:nbytes]


def allocate(plan: Plan, capacity: Capacity) -> tuple[HostStates, dict[State, list[Ref]]]:
    """Memory for the states of a plan, and where each state's tensors are in it."""
    tiled = {state for step in plan.steps if step.op == "linear_attend" for state in step.states}
    stored: list[Stored] = []
    refs: dict[State, list[Ref]] = {state: [] for state in plan.states}
    for tensor in tensors(plan.states, capacity):
        count, nbytes = capacity.count(tensor.unit), _nbytes(tensor)
        memory = zeros(count * nbytes + SLACK)[: count * nbytes]
        refs[tensor.state].append(Ref(Buffer(memory.nbytes, memory.ctypes.data)))
        rows = memory.reshape(count, nbytes)
        if tensor.unit == "slot":
            stored.append(_tiled(tensor, rows) if tensor.state in tiled else _plain(tensor, rows))
        elif tensor.kind in FLOATS:
            stored.append(_floats(tensor, rows, keys=len(refs[tensor.state]) == 1))
        else:
            stored.append(_blocks(tensor, rows, keys=len(refs[tensor.state]) == 1))
    return HostStates(stored), refs


def _nbytes(tensor: Tensor) -> int:
    """Bytes that kernels want for one page, window page or slot."""
    if tensor.unit == "slot":
        return 4 * prod(tensor.shape[:-1]) * _padded(tensor.shape[-1])
    return tensor.shape[0] * page_bytes(tensor.kind, tensor.shape[-1])


def _padded(dim: int) -> int:
    return -(-dim // 8) * 8


def _widened(x: Array, dim: int) -> Array:
    """Zeros behind the last axis."""
    return np.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, dim - x.shape[-1])])


def _floats(tensor: Tensor, rows: Bytes, keys: bool) -> Stored:
    heads, _, dim = tensor.shape
    dtype = f"u{FLOATS[tensor.kind]}"  # the bits

    def export(x: Array) -> Array:
        if keys:
            return x.view(dtype).reshape(heads, _padded(dim), PAGE).swapaxes(1, 2)[..., :dim]
        return x.view(dtype).reshape(heads, PAGE, _padded(dim))[..., :dim]

    def restore(data: Array) -> Array:
        wide = _widened(data.view(dtype).reshape(tensor.shape), _padded(dim))
        return wide.swapaxes(1, 2) if keys else wide

    return Stored(tensor, rows, export, restore)


def _blocks(tensor: Tensor, rows: Bytes, keys: bool) -> Stored:
    heads, _, dim = tensor.shape
    count, payload = -(-dim // 32), 32 if tensor.kind == "q8_0" else 16

    def export(x: Array) -> Array:
        """Blocks of a scale and integers, [heads, PAGE, blocks, 2 + payload]."""
        if keys:
            x = x.reshape(heads, count, (2 + payload) * PAGE)
            scales = x[..., : 2 * PAGE].reshape(heads, count, PAGE, 2).swapaxes(1, 2)
            integers = x[..., 2 * PAGE :].reshape(heads, count, payload, PAGE).transpose(0, 3, 1, 2)
        else:
            x = x.reshape(heads, PAGE, count * (payload + 2))
            scales = x[..., count * payload :].reshape(heads, PAGE, count, 2)
            integers = x[..., : count * payload].reshape(heads, PAGE, count, payload)
        return np.concatenate([scales, integers], axis=-1)

    def restore(data: Array) -> Array:
        blocks = data.reshape(heads, PAGE, count, 2 + payload)
        scales, integers = blocks[..., :2], blocks[..., 2:]
        if keys:
            scales = scales.swapaxes(1, 2).reshape(heads, count, 2 * PAGE)
            integers = integers.transpose(0, 2, 3, 1).reshape(heads, count, payload * PAGE)
            return np.concatenate([scales, integers], axis=-1)
        scales = scales.reshape(heads, PAGE, count * 2)
        return np.concatenate([integers.reshape(heads, PAGE, count * payload), scales], axis=-1)

    return Stored(tensor, rows, export, restore)


def _plain(tensor: Tensor, rows: Bytes) -> Stored:
    """A recurrent state as it is; what pads it is at its end."""
    return Stored(tensor, rows, lambda x: x[: tensor.nbytes], lambda data: _widened(data, rows.shape[1]))


def _tiled(tensor: Tensor, rows: Bytes) -> Stored:
    """[heads, key, dim] in tiles of eight columns: [heads, dim / 8, key, 8]."""
    heads, key, dim = tensor.shape

    def export(x: Array) -> Array:
        tiles = x.view(np.float32).reshape(heads, _padded(dim) // 8, key, 8)
        return tiles.swapaxes(1, 2).reshape(heads, key, _padded(dim))[..., :dim]

    def restore(data: Array) -> Array:
        wide = _widened(data.view(np.float32).reshape(tensor.shape), _padded(dim))
        return wide.reshape(heads, key, _padded(dim) // 8, 8).swapaxes(1, 2)

    return Stored(tensor, rows, export, restore)
