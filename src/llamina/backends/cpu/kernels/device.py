"""The decorators of kernels and of the functions that they are made of."""

from collections.abc import Callable
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


def kernel(writes: tuple[str, ...]) -> Callable[[Any], Any]:
    """The decorator of a call of a plan: `(thread, threads, …)`, the rest named as lowering passes it.

    Floats are annotated. `thread` of `threads` is the part to do, by whatever thread; a kernel that needs memory of
    its own takes `worker`. `writes` names the parameters that it stores through: dependencies are found by them, and
    the machine code is checked against them.
    """

    def decorate(function: Any) -> Any:
        compiled = njit(function, **FLAGS)
        compiled.writes = writes
        return compiled

    return decorate
