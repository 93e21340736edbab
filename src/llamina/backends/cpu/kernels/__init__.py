"""The kernels' Python source. Importing this package imports numba; a warm start never does."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from llamina.errors import KernelError

ROOMS = (
    "walk",
    "elementwise",
    "norm",
    "rope",
    "kept",
    "attention",
    "select",
    "embed",
    "moe",
    "recurrent",
    "quantize",
    "matmul",
    "adapt",
)


def find(name: str) -> Callable[..., Any]:
    """The function behind a kernel's name: `rms_norm`, or `linear.Q4_K` where there is one per format."""
    for room in ROOMS:
        table: dict[str, Callable[..., Any]] = import_module(f"{__name__}.{room}").KERNELS
        if name in table:
            return table[name]
    raise KernelError(f"no CPU kernel is called {name!r}")
