"""What model files handle: values that flow, weights that stay, and the tape that sees every operation."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from llamina.errors import RecordingError, UnsupportedModel
from llamina.quant import Format, decode, format_of

Rows = Literal["tokens", "outputs"]
Shape = tuple[int, ...]
Unit = Literal["page", "window", "slot"]  # what states are counted by: pages, pages of sliding-window layers, sequences


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A named tensor of the file, still in its blocks. If the file has them, its bias and its scale come along."""

    name: str
    shape: Shape  # rows first: a matrix is [out, in]
    format: Format
    data: npt.NDArray[np.uint8]
    bias: "Weight | None" = None
    scale: "Weight | None" = None  # of a matrix, or one for each expert's

    def __str__(self) -> str:
        return self.name.removesuffix(".weight")

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def shaped(self, *shape: int) -> "Weight":
        """The same tensor in another shape (GGUF drops dimensions of 1). Raises UnsupportedModel if sizes differ."""
        if int(np.prod(shape)) != self.size or shape[-1] % self.format.block:
            raise UnsupportedModel(f"{self.name} is {list(self.shape)}, not {list(shape)}")
        return replace(self, shape=shape)

    def floats(self) -> npt.NDArray[np.float32]:
        """Its numbers; for small tensors that the architecture computes with while it is recorded."""
        return decode(self.data, self.format, self.shape)

    def rows(self, start: int, stop: int) -> "Weight":
        """Some of its rows, or of the elements of a vector. Raises UnsupportedModel if it does not have them."""
        if not 0 <= start < stop <= self.shape[0] or (len(self.shape) == 1 and self.format.block > 1):
            raise UnsupportedModel(f"{self.name} is {list(self.shape)}: it has no rows {start} to {stop}")
        size = self.data.nbytes // self.shape[0]
        data = self.data.reshape(-1)[start * size : stop * size]
        return Weight(f"{self.name}[{start}:{stop}]", (stop - start, *self.shape[1:]), self.format, data)


def constant(name: str, values: npt.ArrayLike) -> Weight:
    """Numbers that the architecture itself gives, as a weight."""
    array = np.ascontiguousarray(values, np.float32)
    return Weight(name, array.shape, format_of("F32"), array.reshape(-1).view(np.uint8))


@dataclass(frozen=True, slots=True)
class State:
    """What one layer remembers between steps. KV: a row per token, in pages. Recurrent: one block per sequence."""

    kind: Literal["kv", "latent", "recurrent"]
    layer: int
    shape: Shape  # kv: (heads, key, value); latent: (1, key, value), values being a prefix of the key; else the block
    name: str = ""
    reach: int = 0  # kv: how many of the last positions are attended to; 0: all


class Tape(Protocol):
    """Receives each operation: a recorder writes it down, the eager reference computes it at once."""

    def emit(self, step: "Step") -> None: ...

    def new_id(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Rows of numbers, one row per token or per wanted output; `shape` is that of one row."""

    tape: Tape
    id: int
    shape: Shape
    rows: Rows = "tokens"
    integer: bool = False

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __add__(self, other: "Value | Weight") -> "Value":
        from llamina.ops.vocabulary import add

        return add(self, other)

    def __mul__(self, other: "Value | Weight | float") -> "Value":
        from llamina.ops.vocabulary import mul, scale

        return scale(self, float(other)) if isinstance(other, int | float) else mul(self, other)

    def _data_dependent(self) -> NoReturn:
        raise RecordingError(
            "a model file looked at a value while it was being recorded: values exist only when the plan runs, "
            "so branch on the config instead, or use an operation"
        )

    def __bool__(self) -> bool:
        self._data_dependent()

    def __index__(self) -> int:
        self._data_dependent()

    def __len__(self) -> int:
        self._data_dependent()

    def __float__(self) -> float:
        self._data_dependent()

    def __iter__(self) -> NoReturn:
        self._data_dependent()


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operation applied: `outputs = op(inputs, weights, **attrs)`, touching `states`."""

    op: str
    inputs: tuple[Value, ...]
    weights: tuple[Weight, ...]
    outputs: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    states: tuple[State, ...] = ()

    @property
    def name(self) -> str:
        """The weight it applies, which is also its place in the model."""
        return str(self.weights[0]) if self.weights else (self.states[0].name if self.states else "")
