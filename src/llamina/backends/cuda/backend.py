"""NVIDIA GPUs as a backend, and Triton's interpreter in their place. Nothing is loaded until it is asked for."""

from functools import cache
from typing import TYPE_CHECKING

from llamina.backends.base import Backend, Capacity, Program, Progress, check_kernels
from llamina.backends.cuda.states import TYPES
from llamina.backends.kv_types import KvType
from llamina.errors import KernelError, RequestError
from llamina.ops.batch import Batch
from llamina.plan import Plan

if TYPE_CHECKING:
    from llamina.backends.cuda.device import Device
    from llamina.backends.cuda.program import CudaProgram


class CudaBackend:
    """One GPU, by its number; work is done on a stream of its own, or on the caller's.

    If `exact`, the bits of a token's logits do not depend on what else is in its step (docs/decisions/018).

    Raises RequestError where there is no driver, no such GPU, or no Triton.
    """

    name = "cuda"
    step_tokens = 2048  # weights are dequantized once for so many

    def __init__(self, device: int = 0, offload: str = "none", stream: int | None = None, exact: bool = False) -> None:
        if offload != "none":
            raise RequestError(f"offload is {offload!r}: backend='cuda' keeps all weights on the GPU", "offload")
        if stream is not None and stream < 3:
            message = f"stream is {stream}: it must be one that was made, as torch.cuda.Stream().cuda_stream is"
            raise RequestError(message, "stream")
        self.device: Device = open_gpu(device, stream)
        self.exact = exact

    @property
    def kv_types(self) -> tuple[KvType, ...]:
        return tuple(kind for kind in TYPES if kind != "fp8" or self.device.fp8)

    @property
    def formats(self) -> frozenset[str]:
        from llamina.backends.cuda.kernels.formats import FORMS, PLAIN

        return frozenset((*FORMS, *PLAIN))

    def free_bytes(self) -> int:
        return self.device.free_bytes()

    def weight_bytes(self, nbytes: int) -> int:
        return nbytes

    def parts(self, plan: Plan) -> list[tuple[Backend, Plan]]:
        return [(self, plan)]

    def check(self, plan: Plan) -> None:
        from llamina.backends.cuda.lowering import OPS

        check_kernels(plan, "cuda", OPS, self.formats)
        if any(step.op == "attend" and step.attrs["params"].bounded for step in plan.steps):
            raise KernelError("backend='cuda' has no kernel for attention within bounds: use backend='cpu'")

    def describe(self) -> dict[str, str]:
        return {"backend": self.name, "device": self.device.name}

    def compile(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
    ) -> "CudaProgram":
        from llamina.backends.cuda.program import CudaProgram

        self.check(plan)
        return CudaProgram(self.device, plan, batch, capacity, progress, before, self.exact)


class InterpreterBackend(CudaBackend):
    """The same programs without a GPU, thousands of times slower: for tests."""

    name = "interpreter"

    def __init__(self, offload: str = "none", exact: bool = False) -> None:
        from llamina.backends.cuda.interpreter import Interpreter

        if offload != "none":
            raise RequestError(f"offload is {offload!r}: the interpreter keeps all weights in memory", "offload")
        self.device, self.exact = Interpreter(), exact


@cache
def open_gpu(index: int, stream: int | None = None) -> "Device":
    """A GPU; one object serves all programs of the process that work on one stream."""
    from llamina.backends.cuda.gpu import Gpu

    return Gpu(index, stream)
