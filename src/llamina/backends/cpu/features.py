"""What this CPU can do. Without numba, so that a warm start stays quick."""

import ctypes
import platform
import sys
from typing import Any

import llvmlite.binding as llvm

FEATURES: dict[str, bool] = dict(llvm.get_host_cpu_features())
X86 = platform.machine().lower() in ("x86_64", "amd64")
HAS_AVX2 = X86 and bool(FEATURES.get("avx2"))
HAS_AVX512 = HAS_AVX2 and all(FEATURES.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq"))
HAS_VNNI = HAS_AVX512 and bool(FEATURES.get("avx512vnni"))

ARCH_PRCTL, ASK_FOR_STATE, TILE_DATA = 158, 0x1023, 18  # Linux: the system call, its request, the state's number


def _tiles_allowed() -> bool:
    """Linux grants a process the eight kilobytes of tile registers on request."""
    if not sys.platform.startswith("linux"):
        return False
    libc: Any = ctypes.CDLL(None)
    return bool(libc.syscall(ARCH_PRCTL, ASK_FOR_STATE, TILE_DATA) == 0)


HAS_AMX = HAS_VNNI and all(FEATURES.get(name) for name in ("amx-tile", "amx-int8")) and _tiles_allowed()
