"""The CPU as a backend: its options, its memory, and what it has kernels for. Compiles nothing until it is asked to."""

from typing import TYPE_CHECKING

from llamina.backends import host
from llamina.backends.base import Backend, Capacity, Program, Progress, check_kernels
from llamina.backends.cpu.layout import MATRIX_FORMATS
from llamina.backends.cpu.runtime.offload import Offload
from llamina.backends.kv_types import KvType
from llamina.errors import RequestError
from llamina.ops.batch import Batch
from llamina.plan import Plan

if TYPE_CHECKING:
    from llamina.backends.cpu.program import CpuProgram


class CpuBackend:
    """`threads` are all usable cores unless given.

    `offload` is "budget" (the weights used longest ago leave memory) or "pinned" (the first layers stay, the others
    pass through), with a `memory_budget` in bytes. Raises RequestError for options that make no sense.
    """

    name = "cpu"
    formats = MATRIX_FORMATS
    kv_types: tuple[KvType, ...] = ("f16", "f32", "bf16", "q8_0", "q4_0")

    def __init__(self, threads: int | None = None, offload: str = "none", memory_budget: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise RequestError(f"threads is {threads}: it must be at least 1", "threads")
        self.threads = threads or host.usable_cores()
        self.offload = _offload(offload, memory_budget)

    def free_bytes(self) -> int:
        return host.available_bytes()

    def weight_bytes(self, nbytes: int) -> int:
        return min(nbytes, self.offload.budget) if self.offload else nbytes

    def parts(self, plan: Plan) -> list[tuple[Backend, Plan]]:
        return [(self, plan)]

    def check(self, plan: Plan) -> None:
        from llamina.backends.cpu.lowering import LOWERINGS

        check_kernels(plan, self.name, LOWERINGS, self.formats)

    def describe(self) -> dict[str, str]:
        from llamina.backends.cpu import features

        known = {"AMX": features.HAS_AMX, "VNNI": features.HAS_VNNI, "AVX-512": features.HAS_AVX512}
        known |= {"AVX2": features.HAS_AVX2, "SDOT": features.HAS_SDOT}
        isa = next((name for name, there in known.items() if there), "portable")
        offload = f"{self.offload.policy}, {self.offload.budget} bytes" if self.offload else "none"
        return {"backend": self.name, "isa": isa, "threads": str(self.threads), "offload": offload}

    def compile(
        self,
        plan: Plan,
        batch: Batch,
        capacity: Capacity,
        progress: Progress | None = None,
        before: Program | None = None,
    ) -> "CpuProgram":
        from llamina.backends.cpu.program import CpuProgram

        self.check(plan)
        return CpuProgram(plan, batch, capacity, self.threads, self.offload, progress, before)


def _offload(policy: str, budget: int | None) -> Offload | None:
    """How much of the weights may be resident; None: all of them."""
    if policy not in ("none", "budget", "pinned"):
        raise RequestError(f"offload is {policy!r}: it must be none, budget or pinned", "offload")
    if (policy == "none") != (budget is None):
        raise RequestError(
            f"offload is {policy!r} and memory_budget is {budget}: give both or neither", "memory_budget"
        )
    return Offload("pinned" if policy == "pinned" else "budget", budget) if budget is not None else None
