"""A GGUF file as a mapping of NumPy arrays, for notebooks and scripts."""

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.gguf import GGUF as File
from llamina.gguf import Tensor, Value, open_model
from llamina.quant.format import decode

PLAIN: dict[str, npt.DTypeLike] = {
    "F32": np.float32,
    "F16": np.float16,
    "F64": np.float64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}
SHOWN = 8  # tensors in a repr
LONGEST = 80  # characters of a value that is shown


class GGUF(Mapping[str, npt.NDArray[Any]]):
    """The tensors of a file, or of all its shards, by name: `GGUF("model.gguf")["blk.0.attn_q.weight"]`.

    A tensor is read when it is looked up. Quantized ones, and bfloat16, are dequantized to float32 each time, as ggml
    does; the others are read-only views into the mapped file. `metadata` are the file's keys and values, `tensors` the
    shapes, types and bytes. `llamina.load` takes it. Raises ModelNotFound or ModelFileError.
    """

    def __init__(self, model: str | os.PathLike[str] | File) -> None:
        self.file = model if isinstance(model, File) else open_model(model)

    @property
    def metadata(self) -> Mapping[str, Value]:
        """What the file says of the model."""
        return MappingProxyType(self.file.metadata)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Each tensor's shape, type and stored bytes."""
        return MappingProxyType(self.file.tensors)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The numbers of a tensor, rows first. Raises KeyError with the nearest name if there is no such tensor."""
        if name not in self.file.tensors:
            near = difflib.get_close_matches(str(name), self.file.tensors, 1, cutoff=0)
            raise KeyError(
                f"{name!r} is not a tensor of {self.file.source}: did you mean {near[0]!r}?" if near else name
            )
        tensor = self.file.tensors[name]
        if tensor.type.name in PLAIN:
            return tensor.data.view(PLAIN[tensor.type.name]).reshape(tensor.shape)
        return decode(tensor.data, tensor.type, tensor.shape)

    def __contains__(self, name: object) -> bool:
        return name in self.file.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.file.tensors)

    def __len__(self) -> int:
        return len(self.file.tensors)

    def __repr__(self) -> str:
        width = max((len(name) for name in list(self)[:SHOWN]), default=0)
        lines = [self._title()]
        for name, tensor in list(self.file.tensors.items())[:SHOWN]:
            lines.append(f"  {name:{width}}  {tensor.type.name:7}  {list(tensor.shape)}")
        if len(self) > SHOWN:
            lines.append(f"  … and {len(self) - SHOWN} more")
        return "\n".join(lines)

    def _title(self) -> str:
        known = (self.file.metadata.get(key) for key in ("general.architecture", "general.name"))
        names = ", ".join(str(value) for value in known if value)
        size = sum(tensor.nbytes for tensor in self.file.tensors.values()) / 1e6
        return f"GGUF({self.file.source!r}): {names + ', ' if names else ''}{len(self)} tensors, {size:.1f} MB"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        values = [(key, _short(value)) for key, value in self.file.metadata.items()]
        tensors = [
            (name, tensor.type.name, " × ".join(map(str, tensor.shape)), f"{tensor.nbytes:,}")
            for name, tensor in self.file.tensors.items()
        ]
        return (
            f"<p>{escape(self._title().partition(chr(10))[0])}</p>"
            f"<details><summary>{len(values)} metadata keys</summary>{_table(('key', 'value'), values)}</details>"
            f"<details><summary>{len(tensors)} tensors</summary>"
            f"{_table(('name', 'type', 'shape', 'bytes'), tensors)}</details>"
        )


def _short(value: Value) -> str:
    """A value in a line; of a list its length and beginning."""
    if isinstance(value, list | np.ndarray):
        begin = ", ".join(repr(item.item() if isinstance(item, np.generic) else item) for item in value[:4])
        text = f"{len(value)}: [{begin}{', …' if len(value) > 4 else ''}]"
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
