"""What the engine's tests share: golden cases and the arithmetic to compare with them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def facts(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def log_probabilities(logits: Array) -> Array:
    """[rows, vocab] float64; row by row, because a thousand rows of a large vocabulary are a lot."""
    out = logits.astype(np.float64)
    for row in out:
        row -= row.max()
        row -= np.log(np.exp(row).sum())
    return out


def losses(logits: Array, tokens: Sequence[int]) -> Array:
    """-log p of each token but the first, given those before it."""
    found = np.empty(len(tokens) - 1)
    for i, row in enumerate(logits[:-1].astype(np.float64)):
        row -= row.max()
        found[i] = np.log(np.exp(row).sum()) - row[tokens[i + 1]]
    return found


def top_entries(logits: Array, case: dict[str, Any]) -> tuple[Array, Array]:
    """Log-probabilities at a case's listed tokens, ours and llama.cpp's, each [rows, entries]."""
    ours = log_probabilities(logits)
    ids = np.array([[token for token, _ in top] for top in case["top"]])
    theirs = np.array([[value for _, value in top] for top in case["top"]])
    return np.take_along_axis(ours, ids, 1), theirs


def margins(case: dict[str, Any]) -> Array:
    """By how much llama.cpp preferred each token of its continuation to the second best.

    `next_margin[i]` was measured after token i went in: it is the lead of token i + 1.
    """
    (_, first), (_, second) = case["top"][-1][:2]
    return np.array([first - second, *case["next_margin"][:-1]])
