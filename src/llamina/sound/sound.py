"""Sounds as they come (a file, bytes, base64, an array), checked against limits and made 16000 samples a second.

miniaudio reads them, mixes channels and resamples, as it does in llama.cpp, so samples are the same bits.
"""

import array
import base64
import binascii
import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidSound, RequestError
from llamina.media.source import Source

Samples = npt.NDArray[np.float32]
RATE = 16000
SHAPES = "[n] or [n, channels]"
PIECE = 1 << 16  # samples that are decoded at a time


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a sound may have: bytes as it is given, seconds, and samples a second and channels as recorded."""

    nbytes: int = 64 << 20
    seconds: int = 1800
    channels: int = 8
    rates: tuple[int, int] = (4000, 192000)


LIMITS = Limits()
SOURCE = Source("sound", InvalidSound)


@dataclass(frozen=True, eq=False)
class Sound:
    """`samples` [n] of -1 to 1, 16000 in a second."""

    samples: Samples

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    @cached_property
    def key(self) -> str:
        """The same for the same contents."""
        found = hashlib.blake2b(b"sound:", digest_size=16)
        found.update(np.ascontiguousarray(self.samples).data)
        return found.hexdigest()


def read_sound(source: Any, limits: Limits = LIMITS) -> Sound:
    """The sound of a path, bytes, a `data:` URL, base64, an array of 16000 samples a second, or an array and its rate.

    Raises InvalidSound for what is none, is damaged, or is larger than the limits, RequestError without miniaudio.
    """
    if isinstance(source, Sound):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return _decoded(bytes(source), limits)
    if isinstance(source, str):
        return _decoded(bytes_of(source, limits), limits)
    if isinstance(source, os.PathLike):
        return _decoded(SOURCE.contents(source, limits.nbytes), limits)
    if isinstance(source, np.ndarray):
        return _of_array(source, RATE, limits)
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], np.ndarray):
        return _of_array(source[0], source[1], limits)
    message = f"a sound is {type(source).__name__}: a path, bytes, base64, an array or (array, rate) is expected"
    raise InvalidSound(message)


def bytes_of(text: str, limits: Limits = LIMITS) -> bytes:
    """What a `data:` URL or base64 holds. Raises InvalidSound if it is neither, or holds more than may be."""
    head, _, body = text.rpartition(",")
    if head and not (head.startswith("data:") and head.endswith(";base64")):
        raise InvalidSound(f"the sound is {text[:60]!r}: base64, or data:audio/wav;base64,… is expected")
    if len(body) > 2 * limits.nbytes:
        SOURCE.check(len(body) * 3 // 4, limits.nbytes)
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"the sound is {text[:60]!r}, which is not base64: give that, bytes, an array or a pathlib.Path"
        raise InvalidSound(message) from error


def as_base64(source: Any) -> str:
    """A sound from any source as text: a WAV file of floats in base64. Raises InvalidSound as `read_sound` does."""
    data = read_sound(source).samples.astype("<f4").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, RATE, 4 * RATE, 4, 32)
    head = struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE") + form + struct.pack("<4sI", b"data", len(data))
    return base64.b64encode(head + data).decode()


def _decoded(data: bytes, limits: Limits) -> Sound:
    SOURCE.check(len(data), limits.nbytes)
    reader = _reader()
    try:
        if (kind := format_of(data)) != "mp3":
            info = reader.wav_get_info(data) if kind == "wav" else reader.flac_get_info(data)
            _check_recording(info.nchannels, info.sample_rate, limits)
        pieces = reader.stream_memory(data, reader.SampleFormat.FLOAT32, 1, RATE, PIECE)
        return _whole(pieces, limits)
    except (reader.MiniaudioError, ZeroDivisionError) as error:
        raise InvalidSound(f"the sound is damaged, or of a kind that is not known: {error}") from error


def format_of(data: bytes) -> str:
    """`wav`, `mp3` or `flac`, by the first bytes. Raises InvalidSound for others."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    if data[:3] == b"ID3" or (len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0):
        return "mp3"
    raise InvalidSound("the sound is none of WAV, MP3 and FLAC")


def _whole(pieces: "Iterator[array.array[float]]", limits: Limits) -> Sound:
    """Decoded until it ends, or is longer than it may be, whatever its header says."""
    found = array.array("f")
    for piece in pieces:
        found.extend(piece)
        if len(found) > limits.seconds * RATE:
            raise InvalidSound(f"the sound is longer than {limits.seconds} seconds, which is the most: cut it")
    return _finite(np.frombuffer(found, np.float32))


def _of_array(samples: npt.NDArray[Any], rate: Any, limits: Limits) -> Sound:
    shaped = samples[:, None] if samples.ndim == 1 else samples
    if shaped.ndim != 2:
        raise InvalidSound(f"the array has the shape {list(samples.shape)}: it must be {SHAPES}")
    if not isinstance(rate, int | np.integer):
        raise InvalidSound(f"the rate is {rate!r}: it must be the number of samples in a second")
    _check_recording(shaped.shape[1], int(rate), limits)
    if len(shaped) > limits.seconds * int(rate):
        raise InvalidSound(f"the sound is longer than {limits.seconds} seconds, which is the most: cut it")
    if shaped.dtype == np.int16:
        plain = shaped.astype(np.float32) / np.float32(32768)
    elif np.issubdtype(shaped.dtype, np.floating):
        plain = shaped.astype(np.float32)
    else:
        raise InvalidSound(f"the array is of {samples.dtype}: it must be of floats from -1 to 1, or of int16")
    if shaped.shape[1] == 1 and rate == RATE:
        return _finite(np.ascontiguousarray(plain[:, 0]))
    reader = _reader()
    kind = reader.SampleFormat.FLOAT32
    data = reader.convert_frames(kind, shaped.shape[1], int(rate), plain.tobytes(), kind, 1, RATE)
    return _finite(np.frombuffer(data, np.float32))


def _finite(samples: Samples) -> Sound:
    if not len(samples):
        raise InvalidSound("the sound has no samples: at least one is needed")
    if not np.isfinite(samples).all():
        raise InvalidSound("the sound has samples that are infinite or none: all must be finite")
    return Sound(samples)


def _check_recording(channels: int, rate: int, limits: Limits) -> None:
    if not 1 <= channels <= limits.channels:
        raise InvalidSound(f"the sound has {channels} channels: from 1 to {limits.channels} are read")
    low, high = limits.rates
    if not low <= rate <= high:
        raise InvalidSound(f"the sound has {rate} samples a second: from {low} to {high} are read")


def _reader() -> Any:
    try:
        import miniaudio
    except ImportError as error:
        message = "sounds are read by miniaudio, which is not installed: pip install 'llamina[audio]'"
        raise RequestError(message, "messages") from error
    return miniaudio
