"""LLM inference from GGUF files in pure Python.

engine = llamina.load("model.gguf")
print(engine.generate("The capital of France is"))
"""

from typing import TYPE_CHECKING, Any

from llamina.errors import LlaminaError

if TYPE_CHECKING:
    from llamina.backends.pressure import MemoryPressure, memory_pressure
    from llamina.engine import (
        ChatDelta,
        Completion,
        Delta,
        Embedded,
        Engine,
        ManualSequence,
        Request,
        Session,
        SnapshotInfo,
        load,
        progress,
        snapshot_info,
    )
    from llamina.engine.aio import AsyncEngine
    from llamina.engine.importances import imatrix
    from llamina.grammar import Grammar
    from llamina.models import register_architecture
    from llamina.quant.arrays import GGUF
    from llamina.quantization import auto_quantize, quantize
    from llamina.sampling import Sampling
    from llamina.tokenizer import Tokenizer

__version__ = "0.1.0"
_PLACES = {
    "AsyncEngine": "engine.aio",  # asyncio comes along
    "ChatDelta": "engine",
    "Completion": "engine",
    "Delta": "engine",
    "Embedded": "engine",
    "Engine": "engine",
    "GGUF": "quant.arrays",
    "Grammar": "grammar",
    "ManualSequence": "engine",
    "MemoryPressure": "backends.pressure",
    "memory_pressure": "backends.pressure",
    "Request": "engine",
    "Session": "engine",
    "SnapshotInfo": "engine",
    "snapshot_info": "engine",
    "imatrix": "engine.importances",
    "load": "engine",
    "progress": "engine",
    "quantize": "quantization",
    "register_architecture": "models",
    "Sampling": "sampling",
    "Tokenizer": "tokenizer",
    "auto_quantize": "quantization",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use, so that `llamina --help` stays quick."""
    if name not in _PLACES:
        raise AttributeError(f"module 'llamina' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "GGUF",
    "AsyncEngine",
    "ChatDelta",
    "Completion",
    "Delta",
    "Embedded",
    "Engine",
    "Grammar",
    "LlaminaError",
    "ManualSequence",
    "MemoryPressure",
    "Request",
    "Sampling",
    "Session",
    "SnapshotInfo",
    "Tokenizer",
    "__version__",
    "auto_quantize",
    "imatrix",
    "load",
    "memory_pressure",
    "progress",
    "quantize",
    "register_architecture",
    "snapshot_info",
]
