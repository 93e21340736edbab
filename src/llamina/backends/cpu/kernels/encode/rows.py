"""Blocks of a tensor, shared out among threads."""

from collections.abc import Callable
from typing import Any

from llamina.backends.cpu.kernels.device import kernel, routine
from llamina.backends.cpu.kernels.vector.math import first
from llamina.gguf.types import tensor_type


def encoders(name: str, make: Callable[[bool], Any]) -> dict[str, Any]:
    """The kernels of a format, without importances and with them: `make` makes the function of a block."""
    plain = f"encode_{name.lower()}"
    return {plain: _encoder(make(False), name), f"{plain}.weighted": _encoder(make(True), name)}


def plain_encoder(name: str, block: Any) -> dict[str, Any]:
    """The kernel of a format that takes no importances."""
    return {f"encode_{name.lower()}": _encoder(block, name)}


def _encoder(block: Any, name: str) -> Any:
    """The kernel of a format: `block(x, w, out)` for every block of `rows` rows of `width` floats at `x`.

    `w` are the importances of a row, the same for all rows; formats that take none ignore it.
    """
    values, nbytes = tensor_type(name).block, tensor_type(name).nbytes
    encode = routine(block)

    @kernel(writes=("out",))
    def run(thread, threads, x, w, out, rows, width):
        across = width // values
        for row in range(first(rows, thread, threads), first(rows, thread + 1, threads)):
            for column in range(across):
                at = row * across + column
                encode(x + 4 * values * at, w + 4 * values * column, out + nbytes * at)

    return run


def codebook_encoders(name: str, make: Callable[[bool], Any], plain: bool = True) -> dict[str, Any]:
    """The same for formats with a codebook: `block(x, w, out, tables)`. Some have no kernel without importances."""
    values, nbytes = tensor_type(name).block, tensor_type(name).nbytes

    def encoder(block: Any) -> Any:
        encode = routine(block)

        @kernel(writes=("out",))
        def run(thread, threads, x, w, out, rows, width, tables):
            across = width // values
            for row in range(first(rows, thread, threads), first(rows, thread + 1, threads)):
                for column in range(across):
                    at = row * across + column
                    encode(x + 4 * values * at, w + 4 * values * column, out + nbytes * at, tables)

        return run

    start = f"encode_{name.lower()}"
    return {f"{start}.weighted": encoder(make(True))} | ({start: encoder(make(False))} if plain else {})
