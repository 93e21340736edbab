"""Kernels as machine code: compiled by numba once, kept on disk, linked without numba."""

from llamina.backends.cpu.jit.linking import Kernel, Library, Progress, library

__all__ = ["Kernel", "Library", "Progress", "library"]
