"""Log-mel spectrograms as Whisper's encoder takes them, cut into stretches of 30 seconds."""

from functools import cache

import numpy as np
import numpy.typing as npt

from llamina.sound.sound import RATE, Samples

WINDOW, STEP = 400, 160  # samples of a frame, and from one frame to the next
HALF = WINDOW // 2
STRETCH = 3000  # frames that the encoder takes at a time: 30 seconds
FLOOR = 5.960464477539063e-08  # of a power, before its logarithm
PIECE = 1 << 12  # frames that are transformed at a time

Mel = npt.NDArray[np.float32]  # [frames, mels]


def stretches(samples: Samples, mels: int) -> list[Mel]:
    """The spectrogram of a sound, silence behind it, in stretches of 3000 frames.

    A sound of n times 30 seconds has n + 1 of them, as in llama.cpp.
    """
    whole = count(samples) * STRETCH
    least = np.pad(samples, (0, max(0, HALF + 1 - len(samples))))
    padded = np.pad(np.concatenate([least[HALF:0:-1], least]), (0, WINDOW))
    found = _spectrogram(padded, whole, mels)
    return [found[start : start + STRETCH] for start in range(0, whole, STRETCH)]


def mirrored(samples: Samples, mels: int) -> Mel:
    """The spectrogram of a sound that is mirrored at its ends, as far as it is long enough."""
    before, after = samples[HALF:0:-1], samples[-2 : -HALF - 2 : -1]
    missing = HALF - len(before), HALF - len(after)
    padded = np.pad(np.concatenate([before, samples, after]), missing)
    return _spectrogram(padded, len(samples) // STEP + 1, mels)


def _spectrogram(padded: Samples, whole: int, mels: int) -> Mel:
    """The first frames of what is there, and those of silence behind it; at most 8 powers of ten below the loudest."""
    heard = min(whole, (len(padded) - WINDOW) // STEP + 1)
    found = np.full((whole, mels), np.log10(FLOOR), np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::STEP][:heard]
    for start in range(0, heard, PIECE):
        spectrum = np.fft.rfft(frames[start : start + PIECE] * hann())
        power = np.square(np.abs(spectrum)) @ filters(mels).T
        found[start : start + len(power)] = np.log10(np.maximum(power, FLOOR))
    scaled: Mel = (np.maximum(found, found.max() - np.float32(8)) + np.float32(4)) / np.float32(4)
    return scaled


def count(samples: Samples) -> int:
    """How many stretches a sound has."""
    return (len(samples) // STEP + STRETCH + 1) // STRETCH


@cache
def hann() -> npt.NDArray[np.float64]:
    return 0.5 * (1 - np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW))


@cache
def filters(mels: int) -> npt.NDArray[np.float64]:
    """Triangles over the bins of a spectrum [mels, bins], of equal area, on Slaney's scale."""
    edges = _hertz(np.linspace(0, _mel(RATE / 2), mels + 2))
    bins = np.arange(WINDOW // 2 + 1) * (RATE / WINDOW)
    left, middle, right = (edges[i : i + mels, None] for i in range(3))
    rising, falling = (bins - left) / (middle - left), (right - bins) / (right - middle)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left)


def _mel(hertz: float) -> float:
    """Linear up to 1000 Hz, logarithmic above."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * float(np.log(hertz / 1000) / np.log(6.4))


def _hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))
