"""Sizes and durations as people write them: "8GiB", "1h30m"."""

import re

SIZES = {"": 1} | {
    prefix + suffix: scale**power
    for suffix, scale in (("", 1024), ("ib", 1024), ("b", 1000))
    for power, prefix in enumerate("kmgt", start=1)
} | {"b": 1}  # fmt: skip
DURATIONS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def size(text: str) -> int:
    """Bytes. K, M, G, T and KiB … are powers of 1024, KB … powers of 1000. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in SIZES:
        raise ValueError('must be a number of bytes, or a size like "8GiB"')
    return int(float(match[1]) * SIZES[match[2]])


def duration(text: str) -> float:
    """Seconds; a sign before it counts. Raises ValueError for what is neither a number nor like "1h30m"."""
    given = text.strip()
    if re.fullmatch(r"[+-]?\d+(\.\d+)?", given):
        return float(given)
    parts = re.findall(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d)", given)
    if not parts or "".join(number + unit for number, unit in parts) != given.lstrip("+-"):
        raise ValueError('must be seconds, or a duration like "5m" or "1h30m"')
    total = sum(float(number) * DURATIONS[unit] for number, unit in parts)
    return -total if given.startswith("-") else total
