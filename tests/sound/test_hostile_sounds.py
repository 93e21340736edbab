"""Damaged and hostile sound files: only our errors, and memory stays bounded."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from damage import damaged, growth
from golden import sound_models
from hostile_sounds import HOSTILE, READABLE
from llamina.errors import InvalidSound
from llamina.sound import RATE, Limits, read_sound

EACH = 40  # damaged files of a format
LIMITS = Limits(nbytes=1 << 20, seconds=10)


def whole(format: str, golden: Callable[[str], Path]) -> bytes:
    if format != "wav":
        return golden(f"sounds/tone.{format}").read_bytes()
    return sound_models.wav(np.random.default_rng(4).integers(-9000, 9000, (6000, 2), dtype=np.int16), 22050)


@pytest.mark.parametrize("format", ["wav", "mp3", "flac"])
def test_damaged_files(format: str, golden: Callable[[str], Path]) -> None:
    """A sound, or our error."""
    refused = 0
    for data in damaged(whole(format, golden), EACH, range(4, 44), parts=50):
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
    good = [whole(format, golden) for format in ("wav", "mp3", "flac")]
    bad = [data for each in good for data in damaged(each, EACH, range(4, 44), parts=50)]
    limits = f"nbytes={LIMITS.nbytes}, seconds={LIMITS.seconds}"
    assert growth("sound", "sound", limits, good, [*bad, *HOSTILE.values()], tmp_path) < 32 << 20
