"""Small plans over random weights, run on any backend."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from llamina.backends import Capacity, backend
from llamina.ops import Value, Weight
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import record
from llamina.quant import decode, encode, format_of

Forward = Callable[[Value, Value], Value]


def float_weight(name: str, values: npt.ArrayLike, kind: str = "F32") -> Weight:
    """A weight that holds exactly these values (rounded to the kind)."""
    array = np.asarray(values, np.float32)
    return Weight(name, array.shape, format_of(kind), encode(array, kind).reshape(-1))


def block_weight(name: str, kind: str, shape: tuple[int, ...], seed: int = 0) -> Weight:
    """A weight of random blocks: any bytes that decode to numbers of ordinary size."""
    form, rng = format_of(kind), np.random.default_rng(seed)
    wanted = int(np.prod(shape)) // form.block
    blocks = np.empty((0, form.nbytes), np.uint8)
    while len(blocks) < wanted:
        more = rng.integers(0, 256, (4 * wanted + 64, form.nbytes), dtype=np.uint8)
        largest = np.abs(decode(more, form)).max(-1)
        blocks = np.concatenate([blocks, more[(largest > 1e-3) & (largest < 1e2)]])  # NaN fails both
    return Weight(name, shape, form, blocks[:wanted].reshape(-1))


def run(
    device: str,
    forward: Forward,
    spans: list[list[Span]],
    *,
    threads: int = 1,
    kv_type: str = "f32",
    max_tokens: int = 64,
    pages: int = 16,
) -> npt.NDArray[np.float32]:
    """All outputs of consecutive steps, one after the other."""
    plan = record(forward)
    batch = Batch(max_tokens, max_tokens, 8, pages)
    program = backend(device, **({"threads": threads} if device == "cpu" else {})).compile(
        plan, batch, Capacity(64, 8, kv_type)
    )  # type: ignore[arg-type]
    try:
        return np.concatenate([program.launch(batch.fill(step)).result().copy() for step in spans])
    finally:
        program.close()


def whole(tokens: list[int], first_page: int = 0, slot: int = 0) -> Span:
    """A sequence from its start, all outputs wanted."""
    pages = list(range(first_page, first_page + -(-len(tokens) // PAGE)))
    return Span(tokens, 0, pages, slot, range(len(tokens)))


def pieces(tokens: list[int], size: int, first_page: int = 0, slot: int = 0) -> list[list[Span]]:
    """The same in steps of `size` tokens."""
    pages = list(range(first_page, first_page + -(-len(tokens) // PAGE)))
    return [
        [Span(tokens[i : i + size], i, pages, slot, range(len(tokens[i : i + size])))]
        for i in range(0, len(tokens), size)
    ]


def error(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> float:
    """Normalised mean squared error."""
    return float(np.sum(np.square(got - want, dtype=np.float64)) / np.sum(np.square(want, dtype=np.float64)))
