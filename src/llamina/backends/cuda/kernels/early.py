"""Kernels that begin while the one before them ends (programmatic dependent launch, from compute capability 9.0 on)."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def begin(EARLY: tl.constexpr):
    """First of all: wait until what earlier kernels wrote is there, and let the next kernel come."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
