"""Matrix registers in software, so that the kernels for them run on CPUs without AMX.

`install` has every AMX instruction of a kernel call `emulate`, which keeps each thread's registers in memory. What a
CPU would refuse, registers that were not set up or whose sizes do not fit each other, is noted as a mistake.
"""

import ctypes
import re
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types

PRODUCTS = (
    "tdpbssd",
    "tdpbsud",
    "tdpbusd",
    "tdpbuud",
    "tdpbf16ps",
    "tdpfp16ps",
)  # signed or not: two bits of the index
BF16, FP16 = PRODUCTS.index("tdpbf16ps"), PRODUCTS.index("tdpfp16ps")
LOAD, STORE, ZERO, CONFIGURE, RELEASE = range(8, 13)
OTHERS = {"tileloadd": LOAD, "tilestored": STORE, "tilezero": ZERO, "ldtilecfg": CONFIGURE, "tilerelease": RELEASE}
TILES = 8 * 16 * 64  # bytes; then for each register the bytes of a row and its rows, and whether they are set
ACTIVE, MISTAKES, STATE, THREADS = TILES + 16, TILES + 17, TILES + 64, 251
I64 = ir.IntType(64)

this_thread = ctypes.CDLL(None).pthread_self
this_thread.restype, this_thread.argtypes = ctypes.c_uint64, ()
halves = np.arange(1 << 16, dtype=np.uint32)
numbers = np.concatenate(  # what 16 bits are as bfloat16, and as float16
    [(halves << 16).view(np.float32), halves.astype(np.uint16).view(np.float16).astype(np.float32)]
)
owners, states = np.zeros(THREADS, np.uint64), np.zeros((THREADS, STATE), np.uint8)
BYTES, FLOATS = types.CPointer(types.uint8), types.CPointer(types.float32)


@njit
def state_of(owners, states):  # type: ignore[no-untyped-def]
    """The registers of this thread."""
    thread = this_thread()
    place = np.int64(thread >> np.uint64(12)) % THREADS
    while owners[place] and owners[place] != thread:
        place = (place + 1) % THREADS
    owners[place] = thread
    return states[place]


@cfunc(types.void(*[types.int64] * 4, BYTES, types.int64, types.CPointer(types.uint64), BYTES, FLOATS))
def emulate(kind, t, w, x, memory, stride, owners_at, states_at, numbers):  # type: ignore[no-untyped-def]
    """One instruction on registers t, w and x; rows are loaded from `memory` or stored there, `stride` bytes apart."""
    here = state_of(carray(owners_at, (THREADS,)), carray(states_at, (THREADS, STATE)))
    tiles, sizes = here[:TILES].reshape(8, 16, 64), here[TILES:]
    if kind == CONFIGURE:
        wanted = carray(memory, (64,))
        for n in range(8):
            sizes[n], sizes[8 + n] = wanted[16 + 2 * n], wanted[48 + n]
            if wanted[0] != 1 or wanted[16 + 2 * n] > 64 or wanted[17 + 2 * n] or wanted[48 + n] > 16:
                here[MISTAKES] = 1
        here[ACTIVE], tiles[:] = 1, 0
        return
    if kind == RELEASE:
        here[ACTIVE] = 0
        return
    nbytes, rows = np.int64(sizes[t]), np.int64(sizes[8 + t])
    if not here[ACTIVE] or nbytes * rows == 0:
        here[MISTAKES] = 1
    elif kind == ZERO:
        tiles[t] = 0
    elif kind in (LOAD, STORE):
        for m in range(rows):
            for i in range(nbytes):
                if kind == LOAD:
                    tiles[t, m, i] = memory[m * stride + i]
                else:
                    memory[m * stride + i] = tiles[t, m, i]
    elif sizes[8 + w] != rows or 4 * sizes[8 + x] != sizes[w] or sizes[x] != nbytes:
        here[MISTAKES] = 1
    else:
        for m in range(rows):
            for n in range(nbytes // 4):
                odd, even, total = np.float32(0), np.float32(0), np.int64(0)
                for k in range(sizes[w] // 4):
                    a, b = tiles[w, m, 4 * k : 4 * k + 4], tiles[x, k, 4 * n : 4 * n + 4]
                    if kind >= BF16:
                        u, v, of_kind = a.view(np.uint16), b.view(np.uint16), (kind - BF16) << 16
                        even = np.float32(even + np.float64(numbers[of_kind + u[0]]) * numbers[of_kind + v[0]])
                        odd = np.float32(odd + np.float64(numbers[of_kind + u[1]]) * numbers[of_kind + v[1]])
                    else:
                        for i in range(4):
                            p = np.int64(a[i]) if kind & 2 else np.int64(np.int8(a[i]))
                            q = np.int64(b[i]) if kind & 1 else np.int64(np.int8(b[i]))
                            total += p * q
                if kind >= BF16:
                    tiles[t, m].view(np.float32)[n] += even + odd
                else:
                    tiles[t, m].view(np.int32)[n] += np.int32(total)


def install() -> None:
    """Kernels that are compiled from now on call `emulate`. Only this process may run them."""
    plain = ir.IRBuilder.asm

    def asm(b: Any, kind: Any, text: str, constraints: str, operands: Any, side_effect: bool, name: str = "") -> Any:
        word = text.split(" ")[0]
        if word not in PRODUCTS and word not in OTHERS:
            return plain(b, kind, text, constraints, operands, side_effect, name)
        registers = [int(n) for n in re.findall(r"%tmm(\d)", text)][::-1]
        number = PRODUCTS.index(word) if word in PRODUCTS else OTHERS[word]
        values = [number, *registers, *[0] * (3 - len(registers))]
        memory = [*operands, *[I64(0)] * (2 - len(operands))]
        function = ir.FunctionType(ir.VoidType(), [I64] * 9).as_pointer()
        known = [I64(array.ctypes.data) for array in (owners, states, numbers)]
        return b.call(b.inttoptr(I64(emulate.address), function), [*map(I64, values), *memory, *known])

    ir.IRBuilder.asm = asm


def mistakes() -> bool:
    """Whether an instruction was refused, or registers were left in use."""
    return bool(states[:, [ACTIVE, MISTAKES]].any())


def used() -> bool:
    return bool(owners.any())
