"""Converts a Hugging Face folder to a GGUF file, tensor by tensor."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from llamina.convert.encoders import ARCHITECTURE, Source, encoder_metadata, encoder_of, encoder_tensors
from llamina.convert.families import family_of
from llamina.convert.lazy import BLOCKS, Array, Lazy
from llamina.convert.metadata import model_metadata
from llamina.convert.quantized import dequantized
from llamina.convert.rename import renamed
from llamina.convert.safetensors import tensors_of
from llamina.convert.settings import Settings
from llamina.errors import ModelNotFound, RequestError
from llamina.gguf import TensorType, tensor_type, write
from llamina.tokenizer.huggingface.metadata import tokenizer_metadata

FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}  # of general.file_type
Progress = Callable[[str, int, int], None]
# Matrices that are small, or that kernels read as F32.
_ALWAYS_F32 = re.compile(
    r".*(_norm|\.ffn_gate_inp|\.ffn_gate_inp_shexp|\.ssm_conv1d|^position_embd|^v\.position_embd|^token_types)\.weight"
)
_NEVER_BLOCKS = {"mm.input_projection.weight"}  # which llama.cpp transposes
_SNAPSHOT = re.compile(r"models--(?:.*--)?(.+)")  # a folder of Hugging Face's cache


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a conversion; `notes` are remarks for the user."""

    path: Path
    architecture: str
    type: str
    tensors: int
    parameters: int
    bytes: int
    notes: tuple[str, ...]


def convert(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    type: str | None = None,
    pre: str | None = None,
    mmproj: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Convert a folder to the file `out`, by default one in the working directory that is named after the folder.

    With `mmproj` the encoder of pictures is converted, not the text model. `type` of matrices is f32, f16, bf16 or
    q8_0, by default that in which most are stored. `pre` names the pre-tokenizer, if it is not recognized. The file
    appears when it is complete; one tensor at a time is in memory.
    Raises ModelNotFound, ModelFileError, UnsupportedModel or RequestError.
    """
    source = Path(folder)
    if not source.is_dir():
        raise ModelNotFound(f"{source} is not a folder: give one with config.json and model*.safetensors")
    if mmproj:
        return _convert_encoder(source, out, type, overwrite, progress)
    settings = Settings.read(source)
    family = family_of(settings)
    settings = settings.assuming(family.defaults)
    family.check(settings)
    notes: list[str] = []
    tensors = renamed(family, settings, dequantized(tensors_of(source), settings), notes)
    wanted = _wanted(type, tensors)
    path = _path(out, f"{_name(source)}-{wanted.name}.gguf", overwrite)
    metadata: dict[str, object] = {
        **_general(family.architecture, "model", source, wanted),
        **model_metadata(source, family, settings, notes),
        **tokenizer_metadata(source, settings, tensors["token_embd.weight"].shape[0], pre, notes),
    }
    if family.encoder:
        metadata["tokenizer.ggml.token_type_count"] = settings.count("type_vocab_size", 1)
    return _written(path, metadata, tensors, wanted, notes, progress)


def _convert_encoder(
    source: Path,
    out: str | os.PathLike[str] | None,
    type: str | None,
    overwrite: bool,
    progress: Progress | None,
) -> Converted:
    about = Source.read(source)
    encoder = encoder_of(about)
    about = about.assuming(encoder.family.defaults)
    tensors = encoder_tensors(encoder, about, source, tensors_of(source))
    wanted = _wanted(type, tensors)
    path = _path(out, f"mmproj-{_name(source)}-{wanted.name}.gguf", overwrite)
    metadata = {**_general(ARCHITECTURE, "mmproj", source, wanted), **encoder_metadata(encoder, about)}
    return _written(path, metadata, tensors, wanted, [], progress)


def _path(out: str | os.PathLike[str] | None, default: str, overwrite: bool) -> Path:
    """Raises RequestError for a file that exists, unless it may be overwritten."""
    path = Path(default if out is None else out)
    if path.exists() and not overwrite:
        raise RequestError(f"{path} exists: choose another name, or set overwrite", "out")
    return path


def _general(architecture: str, kind: str, source: Path, wanted: TensorType) -> dict[str, object]:
    return {
        "general.architecture": architecture,
        "general.type": kind,
        "general.name": _name(source),
        "general.file_type": FILE_TYPES[wanted.name],
        "general.quantization_version": 2,
    }


def _written(
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, Lazy],
    wanted: TensorType,
    notes: list[str],
    progress: Progress | None,
) -> Converted:
    _write(path, metadata, tensors, wanted, notes, progress)
    parameters = sum(tensor.size for tensor in tensors.values())
    architecture, size = str(metadata["general.architecture"]), path.stat().st_size
    return Converted(path, architecture, wanted.name, len(tensors), parameters, size, tuple(notes))


def _write(
    path: Path,
    metadata: Mapping[str, object],
    tensors: Mapping[str, Lazy],
    wanted: TensorType,
    notes: list[str],
    progress: Progress | None,
) -> None:
    kinds = {name: _kind(name, tensor, wanted) for name, tensor in tensors.items()}
    if narrow := [name for name, kind in kinds.items() if wanted.name == "Q8_0" and kind.name == "F16"]:
        notes.append(f"{len(narrow)} matrices are F16: their rows do not divide into blocks of Q8_0 ({narrow[0]})")
    total = sum(kinds[name].size(tensor.shape) for name, tensor in tensors.items())
    done = 0

    def data(name: str) -> Iterator[Array]:
        nonlocal done
        for part in tensors[name].encoded(kinds[name], name):
            yield part
            done += part.nbytes
            if progress is not None:
                progress(path.name, done, total)

    write(path, metadata, [(name, t.shape, kinds[name], partial(data, name)) for name, t in tensors.items()])


def _wanted(name: str | None, tensors: Mapping[str, Lazy]) -> TensorType:
    """Return the type of matrices: the given one, else that of most stored values. Raises RequestError."""
    if name is None:
        sizes: Counter[str] = Counter()
        for tensor in tensors.values():
            sizes[tensor.dtype] += tensor.size if tensor.dtype != BLOCKS else 0
        stored = sizes.most_common(1)[0][0]
        return tensor_type(stored if stored in FILE_TYPES else "BF16" if stored.startswith("F8") else "F32")
    if name.upper() not in FILE_TYPES:
        raise RequestError(f"type is {name!r}: must be one of {', '.join(FILE_TYPES).lower()}", "type")
    return tensor_type(name)


def _kind(name: str, tensor: Lazy, wanted: TensorType) -> TensorType:
    shape = tensor.shape
    if tensor.dtype == BLOCKS:
        return tensor_type(BLOCKS)
    if len(shape) < 2 or not name.endswith(".weight") or _ALWAYS_F32.fullmatch(name):
        return tensor_type("F32")
    if shape[-1] % wanted.block or (name in _NEVER_BLOCKS and wanted.name != "F32"):
        return tensor_type("F16")
    return wanted


def _name(folder: Path) -> str:
    """Return the name of a model's folder; in Hugging Face's cache it is that of an ancestor."""
    path = folder.resolve()
    match = _SNAPSHOT.fullmatch(path.parent.parent.name) if path.parent.name == "snapshots" else None
    return match[1] if match else path.name
