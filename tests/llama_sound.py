"""What llama.cpp's libmtmd makes of sounds: samples, mel spectrograms and rows. In tests, this writes the golden facts:

python -m llama_sound golden/stories260K.gguf golden/sound.npz
"""

import ctypes
import re
import sys
import tempfile
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from golden import sound_models
from llama_library import load
from llama_vision import context, declared, rows_of

Array = npt.NDArray[np.float32]
LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
FRAMES, ROWS = 61, 7  # of so many frames and rows, one is kept
FILES = ("tone.mp3", "tone.flac")


class _Options(ctypes.Structure):
    """`struct mtmd_helper_init_opt`."""

    _fields_ = (("frames", c_float), ("folder", c_char_p), ("interval", ctypes.c_int64))


class _Read(ctypes.Structure):
    """`struct mtmd_helper_bitmap_wrapper`."""

    _fields_ = (("bitmap", c_void_p), ("video", c_void_p))


class _Vector(ctypes.Structure):
    """A `std::vector<float>`."""

    _fields_ = (("begin", c_void_p), ("end", c_void_p), ("room", c_void_p))


def samples_of(path: Path, mmproj: Path, data: bytes) -> Array:
    """A file's samples, as the encoder of a model takes them."""
    c = declared()
    c.mtmd_helper_init_opt_default.restype = _Options
    c.mtmd_helper_bitmap_init_from_buf.restype = _Read
    c.mtmd_helper_bitmap_init_from_buf.argtypes = (c_void_p, c_char_p, c_size_t, c_bool, _Options)
    c.mtmd_bitmap_get_data.restype, c.mtmd_bitmap_get_data.argtypes = POINTER(c_float), (c_void_p,)
    c.mtmd_bitmap_get_n_bytes.restype, c.mtmd_bitmap_get_n_bytes.argtypes = c_size_t, (c_void_p,)
    encoder = context(c, load(c, str(path)), mmproj)
    read = c.mtmd_helper_bitmap_init_from_buf(encoder, data, len(data), False, c.mtmd_helper_init_opt_default())
    assert read.bitmap, "llama.cpp cannot read the sound"
    n = c.mtmd_bitmap_get_n_bytes(read.bitmap) // 4
    return np.ctypeslib.as_array(c.mtmd_bitmap_get_data(read.bitmap), (n,)).copy()


def mel_of(path: Path, mmproj: Path, samples: Array) -> list[Array]:
    """Spectrograms [mels, frames], one of each 30 seconds: libmtmd logs them."""
    c: Any = declared()
    encoder = context(c, load(c, str(path)), mmproj)
    found: list[list[list[float]]] = []
    pattern = re.compile(rb"mel\[(\d+)\]\[m=(\d+)\]\[t=\d+\] = (\S+)")

    def hear(_level: int, text: bytes, _data: object) -> None:
        if match := pattern.match(text):
            chunk, mel = int(match[1]), int(match[2])
            while len(found) <= chunk:
                found.append([])
            while len(found[chunk]) <= mel:
                found[chunk].append([])
            found[chunk][mel].append(float(match[3]))

    log = LOG(hear)
    c.mtmd_log_set(log, None)
    start = samples.ctypes.data
    vector = _Vector(start, start + samples.nbytes, start + samples.nbytes)
    preprocess = c._Z27mtmd_debug_preprocess_audioP12mtmd_contextRKSt6vectorIfSaIfEE
    preprocess.restype, preprocess.argtypes = None, (c_void_p, POINTER(_Vector))
    preprocess(encoder, ctypes.byref(vector))
    declared()  # quiet again
    return [np.array(chunk, np.float32) for chunk in found]


def main() -> None:
    text, out = map(Path, sys.argv[1:])
    facts: dict[str, npt.NDArray[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {family: Path(folder) / f"{family}.gguf" for family in sound_models.FAMILIES}
        for family, path in files.items():
            sound_models.write(family, path)
        for name in FILES:
            data = (Path(__file__).parent / "golden" / "sounds" / name).read_bytes()
            facts[name] = samples_of(text, files["qwen2a"], data)
        for k, data in enumerate(sound_models.sounds()):
            samples = samples_of(text, files["qwen2a"], data)
            facts[f"samples.{k}"], facts[f"samples.{k}.n"] = samples[::FRAMES], np.array(len(samples))
            for family in ("qwen2a", "meralion"):
                for j, mel in enumerate(mel_of(text, files[family], samples)):
                    facts[f"mel.{len(mel)}.{k}.{j}"] = mel[:, ::FRAMES]
            for family in files:
                if family == "voxtral":
                    continue
                for j, rows in enumerate(rows_of(text, files[family], samples, sound_models.TEXT)):
                    name, rows = ("voxtral", rows[1:-1]) if family == "voxtral_as_glma" else (family, rows)
                    facts[f"{name}.{k}.{j}"], facts[f"{name}.{k}.{j}.n"] = rows[::ROWS], np.array(len(rows))
                    print(name, k, j, rows.shape, float(np.abs(rows).mean()))
    np.savez_compressed(out, **facts)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
