"""The CPU backend: plans as tables of native kernels, walked by a resident team of threads."""

from llamina.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
