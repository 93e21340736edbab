"""Damaged and hostile sound files: only our errors, and memory stays bounded."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from damage import growth
from hostile_sounds import FORMATS, HOSTILE, READABLE, broken, whole
from llamina.errors import InvalidSound
from llamina.sound import RATE, Limits, read_sound

EACH = 100  # damaged files of a format
LIMITS = Limits(nbytes=1 << 20, seconds=10)


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files(format: str, golden: Callable[[str], Path]) -> None:
    """A sound, or our error."""
    refused = 0
    for data in broken(format, EACH, golden):
        try:
            assert 0 < len(read_sound(data, LIMITS).samples) <= LIMITS.seconds * RATE
        except InvalidSound:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str) -> None:
    if name in READABLE:
        with suppress(InvalidSound):
            assert len(read_sound(HOSTILE[name], LIMITS).samples) <= LIMITS.seconds * RATE
    else:
        with pytest.raises(InvalidSound):
            read_sound(HOSTILE[name], LIMITS)


def test_memory_of_a_process(golden: Callable[[str], Path], tmp_path: Path) -> None:
    good = [whole(format, golden) for format in FORMATS]
    bad = [data for format in FORMATS for data in broken(format, EACH, golden)]
    limits = f"nbytes={LIMITS.nbytes}, seconds={LIMITS.seconds}"
    assert growth("sound", "sound", limits, good, [*bad, *HOSTILE.values()], tmp_path) < 32 << 20
