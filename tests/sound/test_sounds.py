"""Reading sounds, and their spectrograms: llama.cpp's samples and numbers."""

import base64
import io
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden import sound_models
from llama_sound import FILES, FRAMES, samples_of
from llamina.errors import InvalidSound, RequestError
from llamina.sound import RATE, Limits, as_base64, read_sound
from llamina.sound.mel import STRETCH, filters, stretches

SOUNDS = list(sound_models.sounds())


@pytest.fixture(scope="module")
def facts(golden: Callable[[str], Path]) -> Any:
    return np.load(golden("sound.npz"))


def test_samples_are_llama_cpps(facts: Any, golden: Callable[[str], Path]) -> None:
    """The same bits, unless they are resampled or of MP3: compilers differ in the last ones, and in the last sample."""
    for k, data in enumerate(SOUNDS):
        samples = read_sound(data).samples
        assert len(samples) == facts[f"samples.{k}.n"]
        assert np.abs(samples[::FRAMES] - facts[f"samples.{k}"]).max() <= (2e-7 if k == 2 else 0)
    for name in FILES:
        samples, want = read_sound(golden(f"sounds/{name}")).samples, facts[name]
        n = min(len(samples), len(want))
        assert abs(len(samples) - len(want)) <= 1
        assert np.abs(samples[:n] - want[:n]).max() < 2e-5


def test_samples_today(golden: Callable[[str], Path], mmproj: Callable[..., Path], facts: Any) -> None:
    """What llama.cpp reads beside us is what it read for the golden facts; so are WAV files of other widths."""
    text, hearing = golden("stories260K.gguf"), mmproj("qwen2a")
    assert np.array_equal(samples_of(text, hearing, SOUNDS[2])[::FRAMES], facts["samples.2"])
    rng = np.random.default_rng(3)
    for width in (1, 2, 3, 4):
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(3)
            out.setsampwidth(width)
            out.setframerate(8000)
            out.writeframes(rng.bytes(3 * width * 1000))
        got, want = read_sound(file.getvalue()).samples, samples_of(text, hearing, file.getvalue())
        assert abs(len(got) - len(want)) <= 1
        n = min(len(got), len(want))
        assert np.abs(got[:n] - want[:n]).max() < 1e-6


def test_spectrograms_are_llama_cpps(facts: Any) -> None:
    for k, data in enumerate(SOUNDS):
        for mels in (80, 128):
            found = stretches(read_sound(data).samples, mels)
            assert f"mel.{mels}.{k}.{len(found)}" not in facts
            for j, mel in enumerate(found):
                assert mel.shape == (STRETCH, mels)
                assert np.abs(mel.T[:, ::FRAMES] - facts[f"mel.{mels}.{k}.{j}"]).max() < 1e-4


def test_stretches_of_30_seconds() -> None:
    """As many as llama.cpp has: one more where a sound ends with one. Silence and single samples have one."""
    for seconds, n in ((0.001, 1), (29.98, 1), (29.99, 2), (30, 2), (59.9, 2), (60, 3)):
        found = stretches(np.zeros(int(seconds * RATE) or 1, np.float32), 80)
        assert len(found) == n and np.isfinite(found).all()
    alone = stretches(np.ones(1, np.float32), 80)
    assert len(alone) == 1 and np.isfinite(alone).all()
    assert np.allclose(filters(80).sum(1)[40:] * RATE / 400, 1, atol=0.1)  # triangles of equal area


def test_every_source_is_the_same_sound(tmp_path: Path) -> None:
    data = SOUNDS[0]
    (tmp_path / "speech.wav").write_bytes(data)
    whole = read_sound(data)
    raw = np.frombuffer(data[44:], np.int16)
    text = base64.b64encode(data).decode()
    for source in (
        tmp_path / "speech.wav",
        bytearray(data),
        text,
        f"data:audio/wav;base64,{text}",
        raw,
        raw[:, None],
        raw.astype(np.float32) / np.float32(32768),
        (raw / 32768, 16000),
        whole,
        as_base64(whole),
    ):
        assert read_sound(source).key == whole.key
    other = read_sound(SOUNDS[2])
    assert read_sound(as_base64(other)).key == other.key != whole.key and whole.seconds == 2.31


def test_arrays_are_resampled_as_files() -> None:
    data = np.frombuffer(SOUNDS[2][44:], np.int16).reshape(-1, 2)
    array, file = read_sound((data, 44100)).samples, read_sound(SOUNDS[2]).samples
    n = min(len(array), len(file))
    assert abs(len(array) - len(file)) <= 1 and np.abs(array[:n] - file[:n]).max() < 1e-6


SMALL = Limits(nbytes=1 << 20, seconds=2, channels=2, rates=(8000, 48000))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SOUNDS[0], "longer than 2 seconds"),
        (bytes(2 << 20), "1048576 are the most"),
        (base64.b64encode(bytes(2 << 20)).decode(), "1048576 are the most"),
        (sound_models.wav(np.zeros((100, 3), np.int16), 16000), "3 channels: from 1 to 2"),
        (sound_models.wav(np.zeros((100, 1), np.int16), 4000), "4000 samples a second: from 8000 to 48000"),
        (sound_models.wav(np.zeros((0, 1), np.int16), 16000), "no samples"),
        (b"OggS" + bytes(100), "none of WAV, MP3 and FLAC"),
        (b"", "none of WAV, MP3 and FLAC"),
        ("speech.wav", "not base64"),
        ("https://example.org/speech.wav", "not base64"),
        ("data:audio/wav,abc", "is expected"),
        (Path("/nowhere.wav"), "cannot be read"),
        (np.zeros(40000, np.float32), "longer than 2 seconds"),
        (np.zeros((2, 2, 2), np.float32), "it must be \\[n\\] or \\[n, channels\\]"),
        (np.zeros((10, 3), np.float32), "3 channels"),
        (np.zeros(10, np.uint8), "of uint8"),
        (np.full(10, np.nan), "all must be finite"),
        ((np.zeros(10), 7), "7 samples a second"),
        ((np.zeros(10), 16000.5), "the rate is 16000.5"),
        (5, "a sound is int"),
    ],
)
def test_what_is_no_sound(source: Any, message: str) -> None:
    with pytest.raises(InvalidSound, match=message):
        read_sound(source, SMALL)


def test_without_miniaudio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of one channel need no reader."""
    monkeypatch.setitem(__import__("sys").modules, "miniaudio", None)
    with pytest.raises(RequestError, match=r"llamina\[audio\]"):
        read_sound(SOUNDS[0])
    assert len(read_sound(np.zeros(10, np.float32)).samples) == 10
