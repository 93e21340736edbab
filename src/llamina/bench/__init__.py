"""Measuring the speed of models and kernels, alone or against llama.cpp, and perplexity. Results are plain dicts."""

from llamina.bench.baseline import Regression, changed_conditions, regressions
from llamina.bench.kernels import kernel_formats, measure_kernels
from llamina.bench.model import Options, measure_model
from llamina.bench.peer import PEERS, find_peer
from llamina.bench.serving import Load, measure_serving
from llamina.bench.task import Task, grid
from llamina.bench.url import Asked, measure_url

__all__ = [
    "PEERS",
    "Asked",
    "Load",
    "Options",
    "Regression",
    "Task",
    "changed_conditions",
    "find_peer",
    "grid",
    "kernel_formats",
    "measure_kernels",
    "measure_model",
    "measure_serving",
    "measure_url",
    "regressions",
]
