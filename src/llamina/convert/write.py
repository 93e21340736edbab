"""Converts a Hugging Face folder, or one safetensors file of it, to a GGUF file, tensor by tensor."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from llamina.convert.encoders import ARCHITECTURE, encoder_metadata, encoder_tensors, encoders_of
from llamina.convert.encoders import Source as EncoderSource
from llamina.convert.families import family_of
from llamina.convert.lazy import BLOCKS, Lazy
from llamina.convert.metadata import model_metadata
from llamina.convert.quantized import dequantized
from llamina.convert.rename import learned, renamed
from llamina.convert.safetensors import files_of, tensors_in, tensors_of
from llamina.convert.sentence import dense_count, dense_layers
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, ModelNotFound, RequestError
from llamina.gguf import GGUF, ComputedTensor, Tensor, TensorType, tensor_type, write
from llamina.gguf.cursor import LAST_VERSION
from llamina.gguf.header import DEFAULT_ALIGNMENT
from llamina.gguf.types import Bytes
from llamina.gguf.writer import Progress, Source, check_output
from llamina.tokenizer.huggingface.metadata import tokenizer_metadata

FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}  # of general.file_type
# Matrices that are small, or that kernels read as F32.
_ALWAYS_F32 = re.compile(
    r".*(_norm|\.ffn_gate_inp|\.ffn_gate_inp_shexp|\.ssm_conv1d|^position_embd|^[va]\.position_embd|^token_types)\.weight"
)
_NEVER_BLOCKS = {"mm.input_projection.weight"}  # which llama.cpp transposes
_ALWAYS_F16 = re.compile(r"a\.conv1d\.\d\.weight")  # which llama.cpp convolves in no other type
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
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    type: str | None = None,
    imatrix: str | os.PathLike[str] | None = None,
    pre: str | None = None,
    mmproj: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    compiling: Progress | None = None,
) -> Converted:
    """Convert a folder, or a safetensors file with config.json beside it, to the file `out`.

    By default that is one in the working directory that is named after the source. With `mmproj` the encoder of
    pictures or sounds is converted, not the text model. `type` is f32, f16, bf16 or q8_0 for the matrices, by default
    that in which most are stored; or, of a text model, a file type of `quantize`, such as q4_k_m, which may need an
    `imatrix`. What is published in MXFP4 stays so. `pre` names the pre-tokenizer, if it is not recognized. The file
    appears when it is complete; one tensor at a time is in memory. Raises ModelNotFound, ModelFileError,
    UnsupportedModel or RequestError.
    """
    mix = _mix(type, imatrix)
    if mmproj and mix is not None:
        raise RequestError(f"type is {type!r}: of an encoder it must be one of {', '.join(FILE_TYPES).lower()}", "type")
    folder = _folder(Path(source))
    notes: list[str] = []
    tensors, metadata = (
        _encoders(folder, Path(source), notes) if mmproj else _text_model(folder, Path(source), pre, notes)
    )
    wanted = _wanted(None if mix else type, tensors)
    prefix = "mmproj-" if mmproj else ""
    path = Path(out) if out is not None else Path(f"{prefix}{_stem(Path(source))}-{mix or wanted.name}.gguf")
    check_output(path, overwrite, *((source,) if folder != Path(source) else ()))
    metadata = {
        "general.architecture": metadata.pop("general.architecture"),
        "general.type": "mmproj" if mmproj else "model",
        "general.name": _name(folder),
        "general.file_type": FILE_TYPES[wanted.name],
        "general.quantization_version": 2,
        **metadata,
    }
    kinds = {name: _kind(name, tensor, wanted) for name, tensor in tensors.items()}
    if mix is None:
        if narrow := [name for name, kind in kinds.items() if wanted.name == "Q8_0" and kind.name == "F16"]:
            notes.append(f"{len(narrow)} matrices are F16: their rows do not divide into blocks of Q8_0 ({narrow[0]})")
        sources: list[Source] = [
            (name, t.shape, kinds[name], partial(t.encoded, kinds[name], name)) for name, t in tensors.items()
        ]
        write(path, metadata, sources, progress=progress)
    else:
        from llamina.quantization import Options, quantize

        contents = _contents(folder, metadata, tensors, kinds)
        published = [name for name, tensor in tensors.items() if tensor.dtype == BLOCKS]
        if published:
            notes.append(f"{len(published)} matrices stay {BLOCKS}, as they are published ({published[0]})")
        notes += quantize(
            contents, path, mix, imatrix=imatrix, threads=threads, overwrite=overwrite, progress=progress,
            compiling=compiling, options=Options([(f"^{re.escape(name)}$", BLOCKS) for name in published]),
        ).notes  # fmt: skip
    parameters, size = sum(tensor.size for tensor in tensors.values()), path.stat().st_size
    architecture = str(metadata["general.architecture"])
    return Converted(path, architecture, mix or wanted.name, len(tensors), parameters, size, tuple(notes))


def _text_model(
    folder: Path, source: Path, pre: str | None, notes: list[str]
) -> tuple[dict[str, Lazy], dict[str, Any]]:
    """The tensors of the text model, and its metadata."""
    settings = Settings.read(folder)
    family = family_of(settings)
    settings = settings.assuming(family.defaults)
    family.check(settings)
    stored = dequantized(_stored(folder, source), settings)
    tensors = renamed(family, settings, stored, notes)
    if family.dense:
        tensors |= dense_layers(folder)
    elif family.encoder and (count := dense_count(folder)):
        notes.append(f"{count} matrices behind the pooling are left out: {family.architecture} in GGUF has none")
    metadata = {
        "general.architecture": family.architecture,
        **model_metadata(folder, family, settings, notes),
        **learned(family, settings, stored),
        **tokenizer_metadata(folder, settings, tensors["token_embd.weight"].shape[0], pre, notes),
    }
    if family.encoder:
        metadata["tokenizer.ggml.token_type_count"] = settings.count("type_vocab_size", 1)
    return tensors, metadata


def _encoders(folder: Path, source: Path, notes: list[str]) -> tuple[dict[str, Lazy], dict[str, Any]]:
    """The tensors of the encoders, and their metadata."""
    about = EncoderSource.read(folder)
    encoders, stored = encoders_of(about), _stored(folder, source)
    tensors: dict[str, Lazy] = {}
    metadata: dict[str, Any] = {"general.architecture": ARCHITECTURE}
    for encoder in encoders:
        own = about.of(encoder)
        tensors |= encoder_tensors(encoder, own, stored)
        metadata |= encoder_metadata(encoder, own)
        notes += [encoder.note] if encoder.note else []
    return tensors, metadata


def _stored(folder: Path, source: Path) -> dict[str, Lazy]:
    return tensors_of(folder) if folder == source else tensors_in(source)


def _folder(source: Path) -> Path:
    """The folder that config.json should be in. Raises ModelNotFound, or ModelFileError for a part of a model."""
    if source.is_dir():
        return source
    if not source.is_file():
        raise ModelNotFound(
            f"{source} is not a folder: give one with config.json and model*.safetensors, or a .safetensors file of it"
        )
    if len(of := files_of(source)) > 1:
        raise ModelFileError(f"{source} is one of {len(of)} files of a model: give its folder, {source.parent}")
    return source.parent


def _mix(type: str | None, imatrix: str | os.PathLike[str] | None) -> str | None:
    """The file type to quantize to; None for the types that need no encoder. Raises RequestError."""
    if type is not None and type.upper() not in FILE_TYPES:
        from llamina.quantization.types import file_type

        return file_type(type)
    if imatrix is not None:
        raise RequestError(f"type is {type}, which has no use for an importance matrix: leave it out", "imatrix")
    return None


def _contents(
    folder: Path, metadata: dict[str, Any], tensors: Mapping[str, Lazy], kinds: Mapping[str, TensorType]
) -> GGUF:
    """The file that would be written without quantizing, its tensors read from the folder when they are needed."""

    def data(name: str) -> Bytes:
        whole, at = np.empty(kinds[name].size(tensors[name].shape), np.uint8), 0
        for part in tensors[name].encoded(kinds[name], name):
            raw = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            whole[at : at + len(raw)] = raw
            at += len(raw)
        return whole

    computed: dict[str, Tensor] = {
        name: ComputedTensor(name=name, shape=tensor.shape, type=kinds[name], make=partial(data, name))
        for name, tensor in tensors.items()
    }
    return GGUF(str(folder), LAST_VERSION, "little", DEFAULT_ALIGNMENT, metadata, {}, computed)


def _wanted(name: str | None, tensors: Mapping[str, Lazy]) -> TensorType:
    """Return the type of matrices: the given one, else that of most stored values."""
    if name is None:
        sizes: Counter[str] = Counter()
        for tensor in tensors.values():
            sizes[tensor.dtype] += tensor.size if tensor.dtype != BLOCKS else 0
        stored = sizes.most_common(1)[0][0]
        return tensor_type(stored if stored in FILE_TYPES else "BF16" if stored.startswith("F8") else "F32")
    return tensor_type(name)


def _kind(name: str, tensor: Lazy, wanted: TensorType) -> TensorType:
    shape = tensor.shape
    if tensor.dtype == BLOCKS:
        return tensor_type(BLOCKS)
    if len(shape) < 2 or not name.endswith(".weight") or _ALWAYS_F32.fullmatch(name):
        return tensor_type("F32")
    if shape[-1] % wanted.block or _ALWAYS_F16.fullmatch(name) or (name in _NEVER_BLOCKS and wanted.name != "F32"):
        return tensor_type("F16")
    return wanted


def _stem(source: Path) -> str:
    """Return the name of the new file without its type: that of the folder, or of the safetensors file."""
    return _name(source) if source.is_dir() else source.name.removesuffix(".safetensors")


def _name(folder: Path) -> str:
    """Return the name of a model's folder; in Hugging Face's cache it is that of an ancestor."""
    path = folder.resolve()
    match = _SNAPSHOT.fullmatch(path.parent.parent.name) if path.parent.name == "snapshots" else None
    return match[1] if match else path.name
