"""The instruction sets of this CPU, and which of them are used. Without numba, so that a warm start stays quick."""

import ctypes
import os
import platform
import sys
from typing import Any

import llvmlite.binding as llvm

from llamina.errors import RequestError

FEATURES: dict[str, bool] = dict(llvm.get_host_cpu_features())
MACHINE = platform.machine().lower()
LADDER = ("portable", "avx2", "avx512", "amx")


def _has(*names: str) -> bool:
    return all(FEATURES.get(name) for name in names)


def _allowed() -> int:
    """How far up the ladder LLAMINA_ISA lets us go: to the top unless it says otherwise."""
    name = os.environ.get("LLAMINA_ISA", LADDER[-1])
    if name not in LADDER:
        raise RequestError(f"LLAMINA_ISA is {name!r}: {', '.join(LADDER)} are known", "LLAMINA_ISA")
    return LADDER.index(name)


def _tiles_granted() -> bool:
    """Linux gives a process the eight kilobytes of matrix registers on request."""
    if not sys.platform.startswith("linux"):
        return False
    arch_prctl, ask_for_state, tile_data = 158, 0x1023, 18
    libc: Any = ctypes.CDLL(None)
    return bool(libc.syscall(arch_prctl, ask_for_state, tile_data) == 0)


def steps() -> list[str]:
    """The steps of the ladder that this CPU has, whatever LLAMINA_ISA allows."""
    if MACHINE not in ("x86_64", "amd64"):
        return list(LADDER[: 1 + _has("dotprod")])
    found = [
        True,
        _has("avx2", "fma", "f16c"),
        _has("avx512f", "avx512bw", "avx512vl", "avx512dq"),
        _has("avx512vnni", "amx-tile", "amx-int8") and _tiles_granted(),
    ]
    return [name for i, name in enumerate(LADDER) if all(found[: i + 1])]


HAS_AVX2 = MACHINE in ("x86_64", "amd64") and _has("avx2", "fma", "f16c") and _allowed() >= 1
HAS_AVX512 = HAS_AVX2 and _has("avx512f", "avx512bw", "avx512vl", "avx512dq") and _allowed() >= 2
HAS_VNNI = HAS_AVX512 and _has("avx512vnni")
HAS_VBMI = HAS_AVX512 and _has("avx512vbmi", "gfni")
HAS_BF16 = HAS_AVX512 and _has("avx512bf16")
HAS_AMX = HAS_VNNI and _has("amx-tile", "amx-int8") and _allowed() >= 3 and _tiles_granted()
HAS_AMX_BF16 = HAS_AMX and HAS_BF16 and _has("amx-bf16")
HAS_AMX_FP16 = HAS_AMX_BF16 and _has("amx-fp16")
HAS_SDOT = MACHINE in ("arm64", "aarch64") and _has("dotprod") and _allowed() >= 1
ZEN_4 = HAS_AVX2 and llvm.get_host_cpu_name() == "znver4"
"""Whether registers of 512 bits are computed with in halves."""
ZEN_5 = HAS_AVX2 and llvm.get_host_cpu_name() == "znver5"
"""Whether rows are prefetched, and float rows cut, as was best on this CPU; on those before it other ways were."""


def used() -> list[bool]:
    """What kernels depend on of the CPU, as part of their fingerprint."""
    return [
        HAS_AVX2,
        HAS_AVX512,
        HAS_VNNI,
        HAS_VBMI,
        HAS_BF16,
        HAS_AMX,
        HAS_AMX_BF16,
        HAS_AMX_FP16,
        HAS_SDOT,
        ZEN_4,
        ZEN_5,
    ]
