"""Plans run by the GPU's kernels in Triton's interpreter."""

import numpy as np
import numpy.typing as npt
from plans import Forward

from llamina.backends.base import Capacity, KvType
from llamina.backends.cuda import InterpreterBackend
from llamina.backends.cuda.program import CudaProgram
from llamina.ops.batch import Batch, Span
from llamina.plan import record


def compiled(
    forward: Forward, kv_type: KvType = "f32", backend: InterpreterBackend | None = None
) -> tuple[CudaProgram, Batch]:
    """A program for steps of up to 64 tokens, and its batch."""
    batch = Batch(64, 64, 8, 16)
    return (backend or InterpreterBackend()).compile(record(forward), batch, Capacity(64, 8, kv_type)), batch


def interpret(
    forward: Forward, steps: list[list[Span]], kv_type: KvType = "f32", exact: bool = False
) -> npt.NDArray[np.float32]:
    """All outputs of consecutive steps, one after the other."""
    program, batch = compiled(forward, kv_type, InterpreterBackend(exact=exact))
    try:
        return np.concatenate([program.launch(batch.fill(step)).result().copy() for step in steps])
    finally:
        program.close()
