"""The one decorator of functions that kernels are made of."""

from typing import Any

from numba import njit

FLAGS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    # No fastmath: contraction and reassociation would round differently from kernel to kernel.
}


def device(function: Any) -> Any:
    """Compiled into every kernel that calls it."""
    return njit(function, forceinline=True, **FLAGS)


def routine(function: Any) -> Any:
    """Called by kernels, and big enough to stand by itself: inlined everywhere it would cost seconds of compiling."""
    return njit(function, **FLAGS)


def kernel(function: Any) -> Any:
    """A step of a plan: `(thread, threads, …)`, the rest named as the lowering passes it; floats are annotated.

    `thread` of `threads` is the part to do, by whatever thread; one that needs memory of its own asks for `worker`.
    """
    return njit(function, **FLAGS)
