"""The CPU as a backend: its options, its memory, and what it has kernels for. Compiles nothing until it is asked to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llamina.backends import host
from llamina.backends.base import STEP_TOKENS, Backend, Capacity, Program, Progress, check_kernels
from llamina.backends.cpu.layout import MATRIX_FORMATS
from llamina.backends.cpu.runtime.offload import Offload, Pin
from llamina.backends.kv_types import KvType
from llamina.errors import RequestError, check_whole
from llamina.ops.batch import Batch
from llamina.plan import Plan

if TYPE_CHECKING:
    from llamina.backends.cpu.program import CpuProgram


class CpuBackend:
    """`threads` are all usable cores unless given.

    `offload` is "budget" (the weights used longest ago leave memory) or "pinned" (the first layers stay, the others
    pass through), with a `memory_budget` in bytes. `pin` are layers by their numbers (below 0 from the end),
    "embeddings" and "output" that stay before others do; `prefetch` is how many parts of the model are read ahead.
    Raises RequestError for options that make no sense.
    """

    name = "cpu"
    step_tokens = STEP_TOKENS
    formats = MATRIX_FORMATS
    kv_types: tuple[KvType, ...] = ("f16", "f32", "bf16", "q8_0", "q4_0")

    def __init__(
        self,
        threads: int | None = None,
        offload: str = "none",
        memory_budget: int | None = None,
        pin: Sequence[Pin] | None = None,
        prefetch: int | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise RequestError(f"threads is {threads}: it must be at least 1", "threads")
        self.threads = threads or host.usable_cores()
        self.offload = _offload(offload, memory_budget, pin, prefetch)

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


def _offload(policy: str, budget: int | None, pin: Sequence[Pin] | None, prefetch: int | None) -> Offload | None:
    """How much of the weights may be resident; None: all of them."""
    if policy not in ("none", "budget", "pinned"):
        raise RequestError(f"offload is {policy!r}: it must be none, budget or pinned", "offload")
    if (policy == "none") != (budget is None):
        raise RequestError(
            f"offload is {policy!r} and memory_budget is {budget}: give both or neither", "memory_budget"
        )
    if pin is not None and policy != "pinned":
        raise RequestError(f"pin is {pin!r} and offload is {policy!r}: use offload='pinned', or leave it out", "pin")
    if isinstance(pin, str) or not all(_is_pin(one) for one in pin or ()):
        raise RequestError(f"pin is {pin!r}: it must be a list of layers, 'embeddings' and 'output'", "pin")
    if prefetch is not None and policy == "none":
        raise RequestError(f"prefetch is {prefetch!r} without offload: use offload, or leave it out", "prefetch")
    check_whole("prefetch", prefetch, 0, optional=True)
    if budget is None:
        return None
    ahead = 1 if prefetch is None else prefetch
    return Offload("pinned" if policy == "pinned" else "budget", budget, tuple(pin or ()), ahead)


def _is_pin(one: object) -> bool:
    return one in ("embeddings", "output") or (isinstance(one, int) and not isinstance(one, bool))
