"""The frame that encoders of pictures and of sounds share: parts that become rows, and a transformer over these."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from llamina.models import Config, Weights
from llamina.models.blocks import query_key_value
from llamina.ops import Activation, Attention, Value, Weight, activate, attend, flat, gated, heads, linear, norm


class Medium(Protocol):
    """A picture or a sound."""

    @property
    def key(self) -> str:
        """The same for the same contents."""


M = TypeVar("M", bound=Medium, contravariant=True)


@dataclass(frozen=True, slots=True)
class Patches:
    """A part as the plan sees it: numbers [n, row width], learned positions, places (y, x), and which rows come out."""

    rows: npt.NDArray[np.float32]
    tokens: list[int]
    places: npt.NDArray[np.int32]
    outputs: list[int]
    grid: tuple[int, int]  # columns and rows of what comes out
    windows: npt.NDArray[np.int32] | None = None  # [2, n]: the first and the last row of each one's window


@dataclass(frozen=True, slots=True)
class Stem:
    """A forward pass of (tokens, positions, rows) over rows of a width."""

    forward: Callable[[Value, Value, Value], Value]
    row_width: int


Run = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


def projector_of(metadata: Mapping[str, Any], kind: str) -> str:
    """The projector that an mmproj file has for a kind of media (`vision`, `audio`), which tells its family."""
    return str(metadata.get(f"clip.{kind}.projector_type") or metadata.get("clip.projector_type"))


class Encoder(ABC, Generic[M]):
    """One mmproj file. `forward` is recorded by running it; `parts` says what stands in the prompt for a medium."""

    kind: str  # of media, as the file's metadata names it
    norm_kind: Literal["rms", "layer"] = "layer"
    activation: Activation
    both_ways = False  # whether a medium's rows attend to each other in the text model, too
    grid_positions = False  # whether M-RoPE counts a medium's rows in two dimensions
    stems: Sequence[Stem] = ()  # what is done to rows before, each by itself, where they then stand in another order

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.config = Config({**metadata, "general.architecture": f"clip.{self.kind}"})
        self.projector = projector_of(metadata, self.kind)
        self.layers = self.config.layers
        self.attention = Attention(self.config.head_dim**-0.5, causal=False)

    def setup(self) -> None:
        """Read what is particular to the family, once."""

    @abstractmethod
    def parts(self, medium: M) -> list[Any]:
        """What stands for a medium: texts of the prompt, and arrays, in order."""

    def stemmed(self, stem: int, tile: npt.NDArray[Any], run: Run) -> npt.NDArray[Any]:
        """An array of `parts` after a stem, and those before it; `run` puts rows through it."""
        return tile

    @abstractmethod
    def patches(self, tile: npt.NDArray[Any]) -> Patches:
        """An array of `parts`, after the stems, as rows of a batch."""

    def least_rows(self, medium: M) -> int:
        """How many rows a medium becomes at the least, told without encoding it."""
        return 1

    def least_rows_of(self, tile: npt.NDArray[Any]) -> int:
        """How many rows an array of `parts` becomes at the least, told without encoding it."""
        return 1

    def arrange(self, rows: npt.NDArray[np.float32], grid: tuple[int, int]) -> npt.NDArray[np.float32]:
        """The rows of a part as they stand in the prompt."""
        return rows

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Numbers of a row as the plan sees it."""

    @abstractmethod
    def forward(self, tokens: Value, positions: Value, rows: Value) -> Value:
        """The rows that take the place of tokens in the text model."""

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(self.norm(x, w.ln1), w, self.config, layer)
        q, k = (self.rotate(self.head_norm(h, w.get(name))) for h, name in ((q, "attn_q_norm"), (k, "attn_k_norm")))
        h = linear(flat(attend(q, k, v, layer, self.attention_of(layer))), w.attn_out)
        x = x + _scaled(h, w.get("ls1"))
        return x + _scaled(self.mlp(self.norm(x, w.ln2), w), w.get("ls2"))

    def attention_of(self, layer: int) -> Attention:
        return self.attention

    def mlp(self, h: Value, w: Weights) -> Value:
        up, down = w.ffn_up, w.ffn_down
        if up.shape[0] == self.config.width != up.shape[1]:  # files of old converters have the names swapped
            up, down = down, up
        if gate := w.get("ffn_gate"):
            return linear(gated(linear(h, gate), linear(h, up), self.activation), down)
        return linear(activate(linear(h, up), self.activation), down)

    def norm(self, x: Value, w: Weight) -> Value:
        return norm(x, w, self.config.eps, self.norm_kind)

    def head_norm(self, x: Value, w: Weight | None) -> Value:
        """q or k, normed head by head or as a whole, where the file has a norm for it."""
        if w is None:
            return x
        return self.norm(x, w) if w.size == x.shape[1] else heads(self.norm(flat(x), w), x.shape[0])

    def rotate(self, x: Value) -> Value:
        """q or k, rotated by its place, in families that have no learned positions."""
        return x


def _scaled(x: Value, w: Weight | None) -> Value:
    return x * w if w else x
