"""Each backend compiles a plan for one kind of device; nobody else knows a device."""

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any

from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.backends.base import (
        UNITS,
        Backend,
        Capacity,
        Choice,
        Finished,
        KvType,
        Pending,
        Program,
        Progress,
        Sampled,
        States,
        state_bytes,
    )

__all__ = [
    "BACKENDS",
    "UNITS",
    "Backend",
    "Capacity",
    "Choice",
    "Finished",
    "KvType",
    "Pending",
    "Program",
    "Progress",
    "Sampled",
    "States",
    "backend",
    "state_bytes",
]

BACKENDS = ("cpu", "cuda", "reference")  # the default first


def __getattr__(name: str) -> Any:
    """The names of `base`, on first use: the command line asks for `BACKENDS` alone, without NumPy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from llamina.backends import base

    return getattr(base, name)


def backend(name: str, **options: Any) -> "Backend":
    """The backend of a name. Options that are None are left to it.

    Raises RequestError for a name that is none of `BACKENDS`, or an option that it does not have.
    """
    given = {option: value for option, value in options.items() if value is not None}
    made: Callable[..., Backend]
    if name == "cpu":
        from llamina.backends.cpu import CpuBackend

        made = CpuBackend
    elif name == "cuda":
        from llamina.backends.cuda import CudaBackend

        made = CudaBackend
    elif name == "interpreter":  # the GPU's programs without a GPU, for tests alone
        from llamina.backends.cuda import InterpreterBackend

        made = InterpreterBackend
    elif name == "reference":
        from llamina.backends.reference import ReferenceBackend

        made = ReferenceBackend
    else:
        raise RequestError(f"backend {name!r} is not one of {', '.join(BACKENDS)}", "backend")
    for option in given:
        if option not in signature(made).parameters:
            raise RequestError(f"the {name} backend has no option {option!r}", option)
    return made(**given)
