"""Each backend compiles a plan for one kind of device; nobody else knows a device."""

import os
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any

from llamina.backends.kv_types import KV_TYPES, KvType
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.backends.base import (
        STEP_TOKENS,
        UNITS,
        Backend,
        Capacity,
        Choice,
        Finished,
        Pending,
        Program,
        Progress,
        Sampled,
        States,
        check_kv_type,
        state_bytes,
    )

__all__ = [
    "BACKENDS",
    "GPUS",
    "KV_TYPES",
    "STEP_TOKENS",
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
    "best",
    "check_kv_type",
    "state_bytes",
]

BACKENDS = ("auto", "cpu", "cuda", "reference")  # the default first
GPUS = ("cuda", "interpreter")  # those that have memory of their own, beside the host's


def __getattr__(name: str) -> Any:
    """The names of `base`, on first use: the command line asks for `BACKENDS` alone, without NumPy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from llamina.backends import base

    return getattr(base, name)


def backend(name: str, **options: Any) -> "Backend":
    """The backend of a name. Options that are None are left to it.

    `auto` is $LLAMINA_BACKEND if that is set; else a GPU where one can be used, unless an option is given that only the
    CPU has; else the CPU. (Threads are those of the CPU, also beside a GPU.) Raises RequestError for a name that is
    none of `BACKENDS`, or an option that it has not.
    """
    given = {option: value for option, value in options.items() if value is not None}
    exact = given.pop("exact", False)
    made: Callable[..., Backend]
    if name == "auto":
        name = best(given)
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
    if name in GPUS:
        given.pop("threads", None)  # those of the CPU beside it
        given |= {"exact": True} if exact else {}  # others always are
    for option in given:
        if option not in signature(made).parameters:
            raise RequestError(f"the {name} backend has no option {option!r}", option)
    return made(**given)


def best(given: "dict[str, Any]") -> str:
    """The backend that is meant, or the fastest that has all the options."""
    if named := os.environ.get("LLAMINA_BACKEND"):
        return named
    if "device" in given or "stream" in given:
        return "cuda"
    if "memory_budget" in given or given.get("offload", "none") != "none":
        return "cpu"
    from llamina.backends.cuda.found import find_gpus

    return "cuda" if find_gpus().usable else "cpu"
