"""Measuring: rates of whole models and of single kernels, alone or beside llama.cpp, as plain records."""

from llamina.bench.gate import Fall, falls, strangers
from llamina.bench.kernels import kernel_formats, measure_kernels
from llamina.bench.model import Options, measure_model
from llamina.bench.peer import PEERS, find_peer
from llamina.bench.serving import Load, measure_serving
from llamina.bench.task import Task, grid

__all__ = [
    "PEERS",
    "Fall",
    "Load",
    "Options",
    "Task",
    "falls",
    "find_peer",
    "grid",
    "kernel_formats",
    "measure_kernels",
    "measure_model",
    "measure_serving",
    "strangers",
]
