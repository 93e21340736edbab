"""Write tiny mmproj files, one per family of sound encoders, and make the sounds that they hear.

    cd tests && python -m golden.sound_models FOLDER [FAMILY ...]

Weights and sounds come from generators with fixed seeds. sound.npz holds what llama.cpp's libmtmd makes of exactly
these sounds with exactly these files; `python -m llama_sound` in tests computes it again.
"""

import io
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gguf
from golden.vision_models import FAMILIES as SEEING
from golden.vision_models import METADATA as VISION
from golden.vision_models import SEED, TEXT, Draws

WIDTH, FFN, HEADS, LAYERS, MELS, FRAMES = 32, 48, 4, 2, 128, 1500
METADATA = {
    "embedding_length": WIDTH,
    "feed_forward_length": FFN,
    "projection_dim": TEXT,
    "block_count": LAYERS,
    "attention.head_count": HEADS,
    "num_mel_bins": MELS,
}
SOUNDS = ((16000, 1, 2.31), (16000, 1, 33.7), (44100, 2, 1.07))  # samples in a second, channels, seconds


def whisper(draws: Draws, mels: int = MELS) -> None:
    """Convolutions, positions and blocks; keys have no bias."""
    draws.matrix("a.conv1d.1.weight", WIDTH, mels, 3)
    draws.matrix("a.conv1d.1.bias", WIDTH, 1)
    draws.matrix("a.conv1d.2.weight", WIDTH, WIDTH, 3)
    draws.matrix("a.conv1d.2.bias", WIDTH, 1)
    for name in ("a.conv1d.1.weight", "a.conv1d.2.weight"):
        shape = draws.tensors[name].shape
        draws.tensors[name] = (draws.tensors[name] / np.sqrt(shape[1])).astype(np.float16)
    draws.matrix("a.position_embd.weight", FRAMES, WIDTH)
    for layer in range(LAYERS):
        block = f"a.blk.{layer}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            draws.linear(f"{block}.{name}", WIDTH, WIDTH)
        del draws.tensors[f"{block}.attn_k.bias"]
        for name in ("ln1", "ln2"):
            draws.norm(f"{block}.{name}", WIDTH)
        draws.linear(f"{block}.ffn_up", FFN, WIDTH)
        draws.linear(f"{block}.ffn_down", WIDTH, FFN)
    draws.norm("a.post_ln", WIDTH)


def ultravox(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws)
    draws.near_one("mm.a.norm_pre.weight", 4 * WIDTH)
    draws.matrix("mm.a.mlp.1.weight", 2 * FFN, 4 * WIDTH)
    draws.near_one("mm.a.norm_mid.weight", FFN)
    draws.matrix("mm.a.mlp.2.weight", draws.text, FFN)
    return "ultravox", {"projector.stack_factor": 4}


def qwen2a(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws)
    draws.linear("mm.a.fc", draws.text, WIDTH)
    return "qwen2a", {}


def qwen25o(draws: Draws) -> tuple[str, dict[str, Any]]:
    """One file that sees and hears."""
    SEEING["qwen25vl"](draws)
    qwen2a(draws)
    return "qwen2.5o", {"both": True}


def voxtral(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws)
    draws.matrix("mm.a.mlp.1.weight", 2 * WIDTH, 4 * WIDTH)
    draws.matrix("mm.a.mlp.2.weight", draws.text, 2 * WIDTH)
    return "voxtral", {"projector.stack_factor": 4}


def voxtral_as_glma(draws: Draws) -> tuple[str, dict[str, Any]]:
    """The same numbers under the names of another family, with rows before and behind those of the sound.

    llama.cpp cannot encode a Voxtral of 4 frames a row, which all are: it averages frames by twos before it puts them
    together, as the model does not, and ends the process because of what is left over.
    """
    special = voxtral(draws)[1]
    for kind in ("weight", "bias"):
        draws.tensors[f"mm.a.norm_pre.{kind}"] = draws.tensors.pop(f"a.post_ln.{kind}")
    for name, n in (("mm.a.mlp.1.bias", 2 * WIDTH), ("mm.a.mlp.2.bias", draws.text)):
        draws.tensors[name] = np.zeros(n, np.float32)
    for name in ("v.boi", "v.eoi"):
        draws.tensors[name] = np.zeros(draws.text, np.float32)
    return "glma", special


def glma(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws)
    draws.norm("mm.a.norm_pre", WIDTH)
    draws.linear("mm.a.mlp.1", 2 * WIDTH, 4 * WIDTH)
    draws.linear("mm.a.mlp.2", draws.text, 2 * WIDTH)
    draws.matrix("v.boi", draws.text)
    draws.matrix("v.eoi", draws.text)
    return "glma", {"projector.stack_factor": 4}


def musicflamingo(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws)
    draws.linear("mm.a.mlp.1", 2 * WIDTH, WIDTH)
    draws.linear("mm.a.mlp.2", draws.text, 2 * WIDTH)
    return "musicflamingo", {}


def meralion(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws, 80)
    draws.norm("mm.a.norm_pre", 15 * WIDTH)
    draws.linear("mm.a.mlp.0", 5 * WIDTH, 15 * WIDTH)
    draws.linear("mm.a.mlp.1", 5 * WIDTH, 5 * WIDTH)
    draws.linear("mm.a.mlp.2", 5 * WIDTH, 5 * WIDTH)
    draws.linear("mm.a.mlp.3", draws.text, 5 * WIDTH)
    return "meralion", {"projector.stack_factor": 15, "num_mel_bins": 80}


def qwen3a(draws: Draws) -> tuple[str, dict[str, Any]]:
    whisper(draws)
    for name in [name for name in draws.tensors if name.startswith("a.conv1d")]:
        del draws.tensors[name]
    for number, channels in ((1, 1), (2, 24), (3, 24)):
        draws.matrix(f"a.conv2d.{number}.weight", 24, channels, 3, 3)
        draws.tensors[f"a.conv2d.{number}.weight"] /= np.sqrt(3 * channels)
        draws.matrix(f"a.conv2d.{number}.bias", 24, 1, 1)
    draws.matrix("a.conv_out.weight", WIDTH, 24 * MELS // 8)
    draws.linear("mm.a.mlp.1", WIDTH, WIDTH)
    draws.linear("mm.a.mlp.2", draws.text, WIDTH)
    return "qwen3a", {}


FAMILIES = {
    "ultravox": ultravox,
    "qwen2a": qwen2a,
    "qwen25o": qwen25o,
    "voxtral": voxtral,
    "voxtral_as_glma": voxtral_as_glma,
    "glma": glma,
    "musicflamingo": musicflamingo,
    "meralion": meralion,
    "qwen3a": qwen3a,
}


def write(family: str, path: Path, text_width: int = TEXT) -> None:
    """The mmproj file of a family, for a text model of that width."""
    draws = Draws(SEED, text_width)
    kind, special = FAMILIES[family](draws)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", kind)
    if special.pop("both", False):
        writer.add_bool("clip.has_vision_encoder", True)
        writer.add_bool("clip.use_silu", True)
        for key, value in (VISION | {"n_wa_pattern": 3, "projection_dim": text_width}).items():
            writer.add_uint32(f"clip.vision.{key}", value)
        writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
        writer.add_array("clip.vision.image_mean", [0.48, 0.46, 0.41])
        writer.add_array("clip.vision.image_std", [0.27, 0.26, 0.28])
    for key, value in (METADATA | special | {"projection_dim": text_width}).items():
        writer.add_uint32(f"clip.audio.{key}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for name, values in draws.tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sounds() -> Iterator[bytes]:
    """WAV files of 16 bits: a short one, one of more than 30 seconds, and one of another rate with two channels."""
    rng = np.random.default_rng(SEED + 2000)
    for rate, channels, seconds in SOUNDS:
        t = np.arange(int(rate * seconds))[:, None] / rate
        tones = sum(
            np.sin(2 * np.pi * (110.0 * 3**k + 40 * np.arange(channels)) * t) * np.sin(t / (k + 1)) for k in range(4)
        )
        samples = 5000 * tones + 200 * rng.standard_normal((len(t), channels))
        yield wav(np.clip(samples, -32768, 32767).astype(np.int16), rate)


def wav(samples: npt.NDArray[np.int16], rate: int) -> bytes:
    """A WAV file of samples [n, channels]."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return file.getvalue()


def main() -> None:
    folder, *families = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for family in families or FAMILIES:
        write(family, Path(folder) / f"mmproj-{family}.gguf")


if __name__ == "__main__":
    main()
