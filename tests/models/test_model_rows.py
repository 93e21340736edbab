"""Embedding rows with M-RoPE's positions, against llama.cpp."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from live import logits_after_rows

import llamina
from llamina import Embedded


@pytest.mark.parametrize("name", ["qwen2vl-dense", "qwen3vl-dense", "glm4-dense", "llama-dense"])
def test_rows_in_a_grid(files: Callable[[str], Path], name: str) -> None:
    path, numbers = files(name), np.random.default_rng(1)
    places = np.stack([np.zeros(20), np.arange(20) // 5, np.arange(20) % 5], 1).astype(np.int32)
    with llamina.load(path, backend="reference", kv_type="f32") as engine:
        rotary = bool(engine.runner.model.config.rope_sections)
        if not rotary:
            places = np.arange(20, dtype=np.int32)[:, None].repeat(3, 1)
        rows = numbers.standard_normal((20, engine.runner.model.width)).astype(np.float32)
        got = engine.logits([1, 7, Embedded(rows, positions=places if rotary else None), 9, 3])[-1]
    want = logits_after_rows(path, [1, 7], rows, places, [9, 3])
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 5e-6
