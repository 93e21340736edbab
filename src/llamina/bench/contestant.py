"""Who is timed: an engine with its settings, opened in the process that calls `enter`."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol

from llamina.backends import KvType
from llamina.bench.task import Task

Progress = Callable[[str, int, int], None]
STEP = 512  # tokens that go through the model together: everybody's batch and micro-batch


@dataclass(frozen=True, slots=True)
class Setup:
    """One engine and its settings; a plain value, so that it can be sent to another process."""

    engine: Literal["llamina", "llama_cpp", "xllamacpp", "llama_server"]
    path: str
    threads: int
    kv_type: KvType
    sequences: int  # side by side, at most
    context: int  # tokens of one sequence, at most
    vocab: int
    repack: bool = True  # llama.cpp: weights rearranged when they are loaded
    tiled: bool = True  # llama.cpp: its tiled matrix product
    flash: bool = True  # llama.cpp: flash attention, where it can

    @property
    def flags(self) -> str:
        """The flags of llama.cpp by the names it gives them."""
        flash = "" if self.flash else " flash_attn=0"
        return f"repack={int(self.repack)} GGML_CPU_TILED_MM={int(self.tiled)}{flash}"


class Contestant(Protocol):
    """An engine that has loaded a model and can be timed."""

    def seconds(self, task: Task, seed: int) -> float:
        """How long the task took: only what comes after its depth was filled."""
        ...

    def close(self) -> None: ...


def enter(setup: Setup, progress: Progress) -> Contestant:
    """Load the model into its engine."""
    name = "ours" if setup.engine == "llamina" else setup.engine
    contestant: Any = import_module(f"llamina.bench.{name}").enter
    result: Contestant = contestant(setup, progress)
    return result
