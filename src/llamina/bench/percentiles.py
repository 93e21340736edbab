"""The median, 95th and 99th percentile of times."""

from collections.abc import Sequence
from statistics import mean

import numpy as np

PERCENTILES = (50, 95, 99)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """The mean and the percentiles (`p50`, `p95`, `p99`) of times in seconds; nothing of none."""
    if not seconds:
        return {}
    found = np.percentile(seconds, PERCENTILES)
    return {"mean": mean(seconds), **{f"p{p}": float(value) for p, value in zip(PERCENTILES, found, strict=True)}}
