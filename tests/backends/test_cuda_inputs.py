"""The batch as a GPU gets it."""

from typing import Any

import numpy as np

from llamina.backends.cuda.inputs import Inputs
from llamina.ops.batch import Batch, Span


class Memory:
    """A device that keeps what is uploaded."""

    def __init__(self) -> None:
        self.uploaded = np.zeros(0, np.uint8)

    def allocate(self, nbytes: int) -> int:
        return 4096

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        return np.zeros(nbytes, np.uint8)

    def upload(self, source: np.ndarray[Any, Any], at: int) -> None:
        self.uploaded = source.copy()

    def mark(self) -> Any:
        return type("Past", (), {"wait": lambda self: None})()

    def free(self, at: int) -> None: ...


def test_what_a_step_does_not_have_is_a_token() -> None:
    """Kernels read as many tokens as the bucket has; references to sampled ids of an earlier step are none."""
    batch, device = Batch(8, 8, 8, 4), Memory()
    inputs = Inputs(device, batch, adapters=False, windows=False)  # type: ignore[arg-type]
    many = [Span([-1 - i], 7, [0], i, [0]) for i in range(8)]
    few = [Span([-1 - i], 8, [0], i, [0]) for i in range(5)]
    for spans in (many, many, few, few):  # there are two blocks of pinned memory
        inputs.upload(batch.fill(spans))
        at = inputs.refs["tokens"].address - 4096
        tokens = device.uploaded[at : at + 32].view(np.int32)
        assert tokens[: len(spans)].tolist() == [-1 - i for i in range(len(spans))]
        assert (tokens[len(spans) :] == 0).all()
