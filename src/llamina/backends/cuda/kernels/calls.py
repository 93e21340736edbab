"""What is launched: a kernel with its constants and the names of its arguments; and the shape of dot products'
programs.
"""

from dataclasses import dataclass
from typing import Literal

from llamina.backends.cuda.kernels.formats import BY_256
from llamina.backends.cuda.kernels.layout import Layout

Activation = Literal["q8", "f16", "f32"]
Input = Literal["q8", "f32", "norm"]
Constant = int | float | str
Argument = int | float | str | None

ARRAYS = ("low", "high", "scale", "top")
RESIDENT = 16  # warps of dot products at a time on one processor


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel to be launched: "file.function" under kernels.

    Arguments are numbers, names of what the caller puts there, or None.
    """

    kernel: str
    grid: tuple[int, int, int]
    constants: dict[str, Constant]
    args: dict[str, Argument]
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """How many warps a program of `gemv` has, and how many units they multiply at a time."""

    warps: int
    units: int
    tokens: int  # a power of two
    input: Input

    @classmethod
    def of(cls, layout: Layout, tokens: int, input: Input) -> "Shape":
        assert layout.form
        tokens = power(tokens)
        halves = 2 if layout.form.scales in BY_256 else 1
        # A lane keeps the activations of all its runs if registers allow for that: not those of long rows of many bits.
        wide = layout.form.low == 8 or layout.form.high > 0
        runs = max(halves, 8 // tokens if (layout.tiles > 32 and not wide) or tokens > 1 else 4)
        warps = max(1, min(8 if wide else 16, power(layout.tiles) // runs))
        return cls(warps, min(power(layout.tiles), runs * warps) // halves, tokens, input)

    def whole(self, layout: Layout) -> bool:
        """Whether programs hold the activations of whole rows."""
        return self.units >= layout.units

    def programs(self, groups: int, processors: int, items: int = 1) -> int:
        """So many that each takes as many groups as the others, or one less."""
        rounds = -(-groups * items // (processors * max(1, RESIDENT // self.warps)))
        return -(-groups // rounds)

    def call(self, layout: Layout, pair: str = "") -> tuple[dict[str, Constant], dict[str, Argument]]:
        """Constants and arguments of `gemv` that say what is multiplied."""
        constants: dict[str, Constant] = {"FORM": str(layout.form), "TILES": layout.tiles, "K": layout.columns}
        constants |= {"M": self.tokens, "T": self.units, "INPUT": self.input, "PAIR": pair}
        constants["STAGES"] = 2 if pair and layout.tiles > 64 else 3  # what fits into shared memory
        args = self.inputs() | weight_names(layout)
        args |= {f"{k}2": v and f"{v}2" for k, v in weight_names(layout).items()} if pair else dict.fromkeys(SECOND)
        return constants, args

    def inputs(self) -> dict[str, Argument]:
        if self.input == "q8":
            return {"x": "x8", "xd": "xd", "xs": "xs", "norm": None, "stride": None, "eps": None}
        norm = self.input == "norm"
        return {
            "x": "x",
            "xd": None,
            "xs": None,
            "norm": "norm" if norm else None,
            "stride": "stride",
            "eps": "eps" if norm else None,
        }


SECOND = tuple(f"{name}2" for name in ARRAYS)


def weight_names(layout: Layout) -> dict[str, Argument]:
    have = layout.arrays
    return {name: name if name in have else None for name in ARRAYS}


def power(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()
