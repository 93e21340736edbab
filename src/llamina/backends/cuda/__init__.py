"""The backend for NVIDIA GPUs: Triton kernels, launched through the driver, in graphs that are replayed once a step."""

from llamina.backends.cuda.backend import CudaBackend, InterpreterBackend

__all__ = ["CudaBackend", "InterpreterBackend"]
