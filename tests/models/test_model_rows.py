"""Embedding rows with M-RoPE's positions, against llama.cpp."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from live import logits_after_rows

import llamina
from llamina import Embedded


@pytest.mark.parametrize("name", ["qwen2vl-dense", "qwen3vl-dense", "glm4-dense", "llama-dense", "gemma4-shared"])
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


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["gemma3-dense", "gemma4-dense", "gemma4-shared", "llama-dense", "deepseek2-moe"])
def test_rows_that_see_each_other_both_ways(files: Callable[[str], Path], name: str, backend: str) -> None:
    path, numbers = files(name), np.random.default_rng(2)
    places = np.arange(40, dtype=np.int32)[:, None].repeat(3, 1)
    with llamina.load(path, backend=backend, kv_type="f32") as engine:
        rows = numbers.standard_normal((40, engine.runner.model.width)).astype(np.float32)
        prompt = [1, 7, Embedded(rows, both_ways=True), 9, 3]
        got = engine.logits(prompt)[-1]
        causal = engine.logits([1, 7, Embedded(rows), 9, 3])[-1]
    want = logits_after_rows(path, [1, 7], rows, places, [9, 3], both_ways=True)
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < 2e-5  # llama.cpp keeps keys and values in F16
    assert np.sum(np.square(causal - want)) / np.sum(np.square(want)) > 1e-4
