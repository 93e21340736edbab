"""The engines that are timed: llamina, and llama.cpp in three ways. `enter` loads one in the calling process."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol

from llamina.backends import KvType
from llamina.bench.task import Task
from llamina.errors import RequestError

Progress = Callable[[str, int, int], None]
STEP = 512  # most tokens of one step: the batch and micro-batch size of every engine


def measured_backend() -> str:
    """The CPU, also beside a GPU, unless $LLAMINA_BACKEND names another: what the peers compute on."""
    return os.environ.get("LLAMINA_BACKEND") or "cpu"


@dataclass(frozen=True, slots=True)
class Setup:
    """An engine and its settings, as a value that can be sent to another process."""

    engine: Literal["llamina", "llama_cpp", "xllamacpp", "llama_server"]
    path: str
    threads: int
    kv_type: KvType
    sequences: int  # most at a time
    context: int  # most tokens of a sequence
    vocab: int
    repack: bool = True  # llama.cpp: weights rearranged when they are loaded
    tiled: bool = True  # llama.cpp: its tiled matrix product
    flash: bool = True  # llama.cpp: flash attention, where it can
    isa: str | None = None  # llamina: the most of the CPU's instruction sets that kernels use; None: all
    gpu: bool = False  # llamina: computed by the GPU; `threads` is of no account

    @property
    def flags(self) -> str:
        """The flags of llama.cpp, by its own names for them."""
        flash = "" if self.flash else " flash_attn=0"
        return f"repack={int(self.repack)} GGML_CPU_TILED_MM={int(self.tiled)}{flash}"


class Contestant(Protocol):
    """An engine that has loaded a model and can be timed."""

    def seconds(self, task: Task, seed: int) -> float:
        """Seconds that the task took, without filling the KV cache to its depth."""
        ...

    def close(self) -> None: ...


def enter(setup: Setup, progress: Progress) -> Contestant:
    """Load the model into the engine. Raises CapacityError or ModelFileError if that fails."""
    if setup.kv_type == "fp8" and setup.engine != "llamina":
        raise RequestError(f"kv_type is 'fp8': {setup.engine} has no such KV cache, give another", "kv_type")
    name = "ours" if setup.engine == "llamina" else setup.engine
    contestant: Any = import_module(f"llamina.bench.{name}").enter
    result: Contestant = contestant(setup, progress)
    return result
