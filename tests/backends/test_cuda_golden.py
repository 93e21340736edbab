"""Architectures by the GPU's kernels, in Triton's interpreter, against llama.cpp's logits for the same tiny models.

`benchmarks/gpu.py` does the same on a GPU, for all of them.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import llamina
from skips import import_peer

import_peer("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn
NAMES = [  # rotations, windows, caps, sinks, latent attention, experts, recurrences, ALiBi, n-grams, shared keys
    "llama-dense", "gemma2-dense", "gpt-oss-moe", "deepseek2-moe", "mamba2-dense", "qwen3next-moe", "bloom-dense",
    "gemma4-shared",
]  # fmt: skip


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in NAMES[1:])])
def test_golden_logits(name: str, files: Callable[[str], Path], golden: Callable[[str], Path]) -> None:
    """The first tokens of the prompt, two at a time."""
    truth = np.load(golden("arch_logits.npz"))
    tokens, want = [int(t) for t in truth[f"{name}.tokens"][:3]], truth[name][:3]
    with llamina.load(files(name), backend="interpreter", kv_type="f32", step_tokens=2, context=32) as engine:
        got = engine.logits(tokens)
    assert np.sum((got - want) ** 2) / np.sum(want**2) < 1e-6
