"""The compiled plan against the NumPy reference: decoded weights, and no rounding of activations."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from engine_facts import facts, top_entries

import llamina
from llamina import Engine


def test_float_weights(engine: Engine, stories: Path) -> None:
    """A normalised mean squared error of at most 1e-6, at every position."""
    tokens = engine.encode("Once upon a time there was a little dog who liked to swim in the big blue lake")
    with llamina.load(stories, backend="reference") as reference:
        exact = reference.logits(tokens).astype(np.float64)
    found = engine.logits(tokens)
    error = np.square(found - exact).sum(-1) / np.square(exact).sum(-1)
    assert error.max() <= 1e-6


def test_float_weights_and_a_float_cache(stories: Path) -> None:
    with (
        llamina.load(stories, backend="reference", kv_type="f32") as reference,
        llamina.load(stories, kv_type="f32") as compiled,
    ):
        tokens = compiled.encode("Lily and Tom went to the park with their mother and saw a big dog")
        exact = reference.logits(tokens).astype(np.float64)
        error = np.square(compiled.logits(tokens) - exact).sum(-1) / np.square(exact).sum(-1)
    assert error.max() <= 1e-8


def test_the_reference_generates(engine: Engine, stories: Path) -> None:
    with llamina.load(stories, backend="reference") as reference:
        expected = reference.generate("Once upon a time", temperature=0, max_tokens=12)
    assert engine.generate("Once upon a time", temperature=0, max_tokens=12).text == expected.text


def test_quantized_weights(smol: Engine, smollm2: Path, golden: Callable[[str], Path]) -> None:
    """No further from the reference than llama.cpp is, over all log-probabilities that it listed."""
    ours, theirs = [], []
    with llamina.load(smollm2, backend="reference", context=64) as reference:
        for case in facts(golden("smollm2_golden.json"))["cases"]:
            exact, llama_cpp = top_entries(reference.logits(case["tokens"]), case)
            found, _ = top_entries(smol.logits(case["tokens"]), case)
            ours.append(np.abs(found - exact).ravel())
            theirs.append(np.abs(llama_cpp - exact).ravel())
    assert np.concatenate(ours).mean() <= 1.1 * np.concatenate(theirs).mean()
