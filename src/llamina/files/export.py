"""LoRA adapters merged into a model: every adapted matrix becomes W + scale × B·A."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llamina.adapters import Adapter, read_adapter
from llamina.errors import RequestError, UnsupportedModel
from llamina.gguf import GGUF, ComputedTensor, Kind, Tensor, ValueType, open_model, tensor_type, write
from llamina.gguf.types import Bytes
from llamina.gguf.writer import Progress, Source, check_output
from llamina.hub.shards import shards_of
from llamina.ops import LowRank
from llamina.quant import decode, encode

CHUNK = 1 << 22  # values that are computed together
F16 = 1  # in general.file_type
LARGEST_F16 = 65504.0
TIED = "token_embd.weight is the output matrix too, so that changes with it; beside a model an adapter leaves it alone"
Added = list[tuple[LowRank, float]]


@dataclass(frozen=True, slots=True)
class Exported:
    """The result: the new file, its type, the matrices that adapters were merged into, and remarks for the user."""

    path: Path
    type: str
    merged: tuple[str, ...]
    notes: tuple[str, ...] = ()


def export_lora(
    model: str | os.PathLike[str],
    adapters: Mapping[str, float] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    type: str | None = None,
    imatrix: str | os.PathLike[str] | None = None,
    requantize: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    compiling: Progress | None = None,
) -> Exported:
    """Merge adapters (GGUF files or PEFT's folders, with scales or 1) into a model, and write it to `out`.

    Without `type`, as llama-export-lora does: merged matrices are F16, or F32 if they were, and all others stay as they
    are. With a file type, such as bf16 or q4_k_m, the model is quantized to it in the same go; `imatrix` and
    `requantize` are those of `quantize`. The file appears when it is complete; one tensor at a time is in memory.
    Raises ModelNotFound, ModelFileError, UnsupportedModel or RequestError.
    """
    path = Path(out)
    scales = dict(adapters) if isinstance(adapters, Mapping) else {os.fspath(adapter): 1.0 for adapter in adapters}
    if not scales:
        raise RequestError("there is no adapter to merge: give one or more", "adapters")
    check_output(path, overwrite, *shards_of(Path(model)), *scales)
    with open_model(model) as file:
        added: dict[str, Added] = {}
        notes: tuple[str, ...] = ()
        for source, scale in scales.items():
            adapter = read_adapter(source, file.metadata)
            _check(file, adapter)
            for name, pair in adapter.pairs.items():
                added.setdefault(name, []).append((pair, scale))
        if type is None:
            _write(path, file, added, progress)
        else:
            from llamina.quantization import quantize

            computed = {name: _computed(t, added[name]) if name in added else t for name, t in file.tensors.items()}
            options = {"imatrix": imatrix, "requantize": requantize, "threads": threads, "overwrite": overwrite}
            merged = replace(file, tensors=computed)
            made = quantize(merged, path, type, progress=progress, compiling=compiling, **options)  # type: ignore[arg-type]
            type, notes = made.type, made.notes
        tied = "token_embd.weight" in added and "output.weight" not in file.tensors
    return Exported(path, type or "F16", tuple(sorted(added)), (*notes, *((TIED,) if tied else ())))


def _check(file: GGUF, adapter: Adapter) -> None:
    """Raise UnsupportedModel unless the adapter was trained on such a model, and acts on every token."""
    architecture = file.metadata.get("general.architecture")
    if adapter.architecture != architecture:
        raise UnsupportedModel(
            f"{adapter.source} adapts a model of architecture {adapter.architecture}, and this one is {architecture}: "
            "merge it into the model it was trained on"
        )
    if adapter.invocation:
        raise UnsupportedModel(
            f"{adapter.source} acts only after its invocation tokens (aLoRA), which a merged model cannot: load it "
            "beside the model"
        )
    for name, pair in adapter.pairs.items():
        tensor = file.tensors.get(name)
        if tensor is None:
            raise UnsupportedModel(f"{adapter.source} adapts {name}, which {file.source} does not have")
        if name.removesuffix("weight") + "scale" in file.tensors:
            raise UnsupportedModel(f"{name} has a scale of its own, which would scale what is merged: use an F16 model")
        if len(tensor.shape) < 2 or not pair.fits("embed" if _is_table(tensor) else "linear", tensor.shape):
            raise UnsupportedModel(
                f"{adapter.source} adapts {name} with {list(pair.a.shape)} and {list(pair.b.shape)}, which do not fit "
                f"its {list(tensor.shape)}: merge it into the model it was trained on"
            )


def _is_table(tensor: Tensor) -> bool:
    return tensor.name == "token_embd.weight"


def _write(path: Path, file: GGUF, added: Mapping[str, Added], progress: Progress | None) -> None:
    tensors: list[Source] = []
    for name, tensor in file.tensors.items():
        kind = tensor_type("F32" if tensor.type.name == "F32" else "F16")
        if name in added:
            tensors.append((name, tensor.shape, kind, partial(_encoded, tensor, added[name], kind.name)))
        else:
            tensors.append(tensor)
    metadata = {**file.metadata, "general.file_type": F16}
    types = {**file.metadata_types, "general.file_type": Kind(ValueType.UINT32)}
    write(path, metadata, tensors, metadata_types=types, progress=progress)


def _computed(tensor: Tensor, added: Added) -> Tensor:
    def data() -> Bytes:
        values, at = np.empty((prod(tensor.shape[:-1]), tensor.shape[-1]), np.float32), 0
        for part in _rows(tensor, added):
            values[at : at + len(part)] = part
            at += len(part)
        return values.reshape(-1).view(np.uint8)

    return ComputedTensor(name=tensor.name, shape=tensor.shape, type=tensor_type("F32"), make=data)


def _encoded(tensor: Tensor, added: Added, kind: str) -> Iterator[npt.NDArray[np.uint8]]:
    for values in _rows(tensor, added):
        if kind == "F16" and (largest := float(np.max(np.abs(values)))) > LARGEST_F16:
            raise RequestError(f"{tensor.name} would hold {largest:g}, which F16 cannot: choose bf16 or f32", "type")
        yield encode(values, kind)


def _rows(tensor: Tensor, added: Added) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the merged matrix, some rows at a time, one expert after the other."""
    *experts, out, width = tensor.shape
    data = tensor.data.reshape(prod(experts), out, -1)
    step = max(1, CHUNK // width)
    for expert, rows in enumerate(data):
        for at in range(0, out, step):
            part = slice(at, at + step)
            values = decode(rows[part], tensor.type)
            with np.errstate(all="ignore"):
                for pair, scale in added:
                    a, b = (side[expert] if experts else side for side in (pair.a, pair.b))
                    product = a[part] @ b.T if _is_table(tensor) else b[part] @ a
                    values += np.float32(scale * pair.scale) * product
            if not np.isfinite(values).all():
                raise RequestError(
                    f"{tensor.name} would hold NaN or infinity: verify the model, the adapter and its scale"
                )
            yield values
