"""From a model's outputs for each token to one vector for a text."""

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from llamina.errors import RequestError
from llamina.models import Config

Array: TypeAlias = npt.NDArray[np.float32]
Pooling = Literal["mean", "max", "cls", "last", "rank"]
IN_FILES: tuple[Pooling | None, ...] = (None, "mean", "cls", "last", "rank")  # by GGUF's numbers


def pooling_of(config: Config, causal: bool) -> Pooling:
    """The one the file names; without a name, the last token of those that have seen all others, else the mean."""
    number = config.count("pooling_type", 0, least=0)
    if number >= len(IN_FILES):
        key = f"{config.architecture}.pooling_type"
        raise RequestError(f"{key} is {number}, which is not known here: name a pooling", "pooling")
    return IN_FILES[number] or ("last" if causal else "mean")


def check_pooling(pooling: Any) -> Pooling:
    if pooling not in get_args(Pooling):
        raise RequestError(f"pooling is {pooling!r}: {', '.join(get_args(Pooling))} are known", "pooling")
    found: Pooling = pooling
    return found


def rows_of(pooling: Pooling, causal: bool, n: int) -> range:
    """The positions, of n, that a pooling looks at; a classifier looks at one that has seen all."""
    if pooling == "last" or (pooling == "rank" and causal):
        return range(n - 1, n)
    return range(1) if pooling in ("cls", "rank") else range(n)


def pool(rows: Array, pooling: Pooling) -> Array:
    """[positions, width] → [width]."""
    if pooling == "max":
        return np.asarray(rows.max(0), np.float32)
    return np.asarray(rows.sum(0, dtype=np.float64) / len(rows), np.float32)


def normalized(vector: Array) -> Array:
    """Of length 1, unless it is 0."""
    length = float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
    return (vector / length).astype(np.float32) if length else vector
