"""Safetensors files, read and written: the length of a JSON header, the header, and the bytes of the tensors."""

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.convert.lazy import DTYPES, Array, Lazy
from llamina.errors import ModelFileError, UnsupportedModel
from llamina.tokenizer.huggingface.json_file import parse_json
from llamina.tokenizer.huggingface.json_file import read_json as read_json

_LENGTH = 8  # bytes of the header's length
_MAX_HEADER = 100 << 20  # bytes: the format's own limit
_INDEX = "model.safetensors.index.json"


def tensors_of(folder: Path) -> dict[str, Lazy]:
    """Return the tensors of a model's folder by name; only headers are read. Raises ModelFileError."""
    tensors: dict[str, Lazy] = {}
    for path in _files(folder):
        for name, tensor in tensors_in(path).items():
            if name in tensors:
                raise ModelFileError(f"{path.name} holds {name}, and so does another file of {folder}")
            tensors[name] = tensor
    return tensors


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelFileError(f"{index} has no weight_map: fetch it again")
        paths = [folder / Path(str(name)).name for name in sorted(set(weight_map.values()))]
    else:
        paths = sorted(folder.glob("model*.safetensors"))
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelFileError(f"{folder} lacks {', '.join(missing)}, which its index names: fetch the rest")
    if not paths:
        raise ModelFileError(_no_weights(folder))
    return paths


def _no_weights(folder: Path) -> str:
    """Return the error message for a folder without safetensors files."""
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")):
        return f"{folder} has PyTorch's pickle files and no model*.safetensors: save it as safetensors first"
    return f"{folder} has no model*.safetensors: fetch the weights too"


def tensors_in(path: Path) -> dict[str, Lazy]:
    """Return the tensors of one file by name. Raises ModelFileError."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if not 2 <= length <= min(_MAX_HEADER, size - _LENGTH):
            raise ModelFileError(
                f"{path} is not a safetensors file, or truncated: its header would have {length} bytes"
            )
        header = parse_json(file.read(length), path)
    start = _LENGTH + length
    return {
        name: _tensor(path, name, entry, start, size - start)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def save_tensors(path: Path, tensors: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write a file of float32 tensors, one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [place, place + values.nbytes]}
        place += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH)  # so that the tensors are aligned
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(_LENGTH, "little") + text)
        for values in tensors.values():
            file.write(np.ascontiguousarray(values, "<f4").tobytes())


def _tensor(path: Path, name: str, entry: Any, start: int, available: int) -> Lazy:
    try:
        dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        first, last = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise ModelFileError(f"{path}: the header's entry of {name} is damaged: fetch the file again") from None
    size = prod(shape) * DTYPES[dtype].itemsize if dtype in DTYPES else last - first
    if not 0 <= first <= last <= available or any(n < 0 for n in shape) or last - first != size:
        raise ModelFileError(f"{path}: {name} is outside the file, which is truncated or damaged: fetch it again")

    def load() -> Array:
        if dtype not in DTYPES:
            raise UnsupportedModel(f"{name} is {dtype}, which llamina cannot convert: save it as {', '.join(DTYPES)}")
        return np.fromfile(path, DTYPES[dtype], prod(shape), offset=start + first).reshape(shape)

    return Lazy.of(shape, dtype, load)
