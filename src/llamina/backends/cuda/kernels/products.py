"""Matrix products on the device: which kernels run for a weight and a number of tokens, and what they are given.

How a weight gets there, at load:

    layout = Layout.of("Q4_K", rows, columns, experts=1)   # layout.py
    layout.arrays             # {"low": Array("i32", (…)), "scale": …, …}: what to allocate
    layout.pack(data)         # uint8 [experts · rows, bytes of a row] → the same names, by NumPy
    relay(layout, …)          # loading.py: the same by the GPU, which is the quick way
    layout.gain(data)         # a number that products of tensor cores need

Tiles are 8 rows by 128 columns; rows and columns are padded (`layout.padded` columns). Matrices of one format that
the same tokens are multiplied by are best stacked: one product instead of several, with more for each processor to
do.

What a product reads, besides the weight. `product.activation` says which kind:

    "q8"   8-bit blocks of 32, natural order, for few tokens and quantized weights:
               x8 i8 [tokens, padded], xd f32 [tokens, padded/32] scales,
               xs i32 [tokens, padded/32] sums of the first 16 (lower half word) and of the last 16 (upper half word)
    "f16"  float16 for the tensor cores, columns in fragment order (`activations`); for F16 and BF16 weights always:
               xf f16 [tokens, padded], xe f32 [tokens] the power of two that a row was divided by
    "f32"  float32 as it is, for F32 weights:
               x f32 [tokens, columns]

`activations.prepare_q8` and `activations.prepare_f16` make them of float32 rows; kernels that compute such rows
(norm, silu · up, attention) can end in `activations.store_q8` or `activations.store_f16` instead. Padding is
written as zeros.

    Product(layout, tokens, gain, …).calls → [Call, …], to be run in order

A `Call` is a kernel ("file.function" under kernels), its grid, constants, warps, stages, and its arguments:
numbers, or the names of what the caller puts there: the layout's arrays, those of the activation, and

    out     f32 [tokens, rows]: the product
    add     f32 [tokens, rows]: added to it (the residual stream; may be `out` itself)
    bias    f32 [rows]
    expert  i32 [tokens]: the expert of each item, of grouped products; an item is a token for one of its experts
    source  i32 [tokens]: the row of the activation that an item reads
    and what `product.workspace` lists: parts, image, order, starts

A parameter that a kernel does not read is `None`, a constant. `tokens` is a number that a graph is captured for;
there may be less of them if nobody looks at the rest of `out`, but activations there must be numbers.

Same bits: with `exact=True` all products are by tensor cores, and sum in an order that depends on rows and columns
alone. Without, numbers of tokens up to FEW, up to 128, up to MANY and above may have bits of their own.
"""

from dataclasses import dataclass
from functools import cached_property

from llamina.backends.cuda.kernels.calls import Activation, Argument, Call, Constant, Shape, power, weight_names
from llamina.backends.cuda.kernels.layout import GROUP, TILE, Array, Layout

FEW = 2  # tokens that dot products of 8-bit activations are for
FEW_ITEMS = 32  # the same of grouped products, which read a matrix for each item
MANY = 512  # tokens; for more, a weight is dequantized first
WARPS = 4
LONG = 64  # tiles of a row


def activation_arrays(kind: Activation, tokens: int, layout: Layout) -> dict[str, Array]:
    """What an activation consists of."""
    padded = layout.padded
    if kind == "q8":
        runs = (tokens, padded // 32)
        return {"x8": Array("i8", (tokens, padded)), "xd": Array("fp32", runs), "xs": Array("i32", runs)}
    if kind == "f16":
        return {"xf": Array("fp16", (tokens, padded)), "xe": Array("fp32", (tokens,))}
    return {"x": Array("fp32", (tokens, layout.columns))}


def prepare(kind: Activation, tokens: int, layout: Layout, stride: int, early: bool = False) -> Call | None:
    """The kernel that makes an activation of float32 rows `x`, `stride` numbers apart; None if rows do as they are.

    That for tensor cores does not begin early: products behind it were slower then.
    """
    constants: dict[str, Constant] = {"K": layout.columns, "PADDED": layout.padded}
    if kind == "q8":
        blocks = min(32, power(layout.padded // 32))
        names: dict[str, Argument] = {"x": "x", "x8": "x8", "xd": "xd", "xs": "xs", "stride": stride}
        grid = (tokens, -(-layout.padded // (32 * blocks)), 1)
        return Call("activations.prepare_q8", grid, constants | {"BLOCKS": blocks, "EARLY": int(early)}, names)
    if kind == "f16":
        names = {"x": "x", "xf": "xf", "xe": "xe", "stride": stride}
        block = min(4096, power(layout.padded))
        return Call("activations.prepare_f16", (tokens, 1, 1), constants | {"BLOCK": block}, names, warps=8)
    return None


@dataclass(frozen=True)
class Product:
    """A weight's product with a number of tokens."""

    layout: Layout
    tokens: int
    gain: float  # of `Layout.gain`
    exact: bool = False
    add: bool = False
    bias: bool = False
    grouped: bool = False  # tokens are items, each with an expert and a row of the activation
    processors: int = 132
    early: bool = False  # kernels begin while the one before them ends, and wait by themselves

    @property
    def few(self) -> bool:
        """Whether it is made of dot products."""
        if self.exact or self.tokens > (FEW_ITEMS if self.grouped else FEW):
            return False
        tokens = 1 if self.grouped else self.tokens
        return not self.layout.form or tokens == 1 or Shape.of(self.layout, tokens, "q8").whole(self.layout)

    @property
    def activation(self) -> Activation:
        if self.layout.format == "F32":
            return "f32"
        return "q8" if self.few and self.layout.form else "f16"

    @property
    def workspace(self) -> dict[str, Array]:
        """What the kernels need besides: nobody else's while they run."""
        found: dict[str, Array] = {}
        if not self.few:
            if self.split > 1:
                found["parts"] = Array("fp32", (self.split, self.tokens, self.layout.rows))
            if self.dequantized:
                found["image"] = Array("fp16", (self.height * self.layout.experts, self.layout.padded))
            if self.grouped:
                found["order"] = Array("i32", (self.tokens,))
                found["starts"] = Array("i32", (self.layout.experts + 1,))
        return found

    @property
    def dequantized(self) -> bool:
        return self.layout.form is not None and self.tokens > MANY and not self.grouped and not self.exact

    @property
    def height(self) -> int:
        """Rows of an expert's matrix, where it is numbers."""
        return self.layout.groups * GROUP if self.layout.form else self.layout.rows

    @property
    def split(self) -> int:
        """In how many parts columns are summed, by programs of their own; if `exact`, whatever the number of tokens."""
        blocks = -(-self.layout.rows // (16 * WARPS)) * (1 if self.exact else -(-self.tokens // 128))
        tiles = self.layout.padded // TILE
        if self.layout.format == "F32" or blocks >= self.processors or tiles < 16:
            return 1
        if tiles >= LONG and not self.grouped:
            return 8
        most = min(8, self.processors // blocks, tiles // 8)
        return 1 << most.bit_length() - 1 if most > 1 and not self.grouped else 4 if tiles >= 32 else 2

    @cached_property
    def calls(self) -> list[Call]:
        if self.few:
            return [self._gemv() if self.layout.form else self._gemv_plain()]
        calls = []
        if self.grouped:
            calls.append(self._group())
        if self.layout.form and not self.dequantized:
            calls.append(self._gemm())
        else:
            calls += [self._image()] if self.dequantized else []
            calls.append(self._gemm_plain())
        if self.split > 1:
            calls.append(self._combine())
        return calls

    def _after(self, apart: bool = False) -> tuple[dict[str, Constant], dict[str, Argument]]:
        """Constants and arguments of what follows a product; nothing follows parts of it."""
        add, bias = self.add and not apart, self.bias and not apart
        constants: dict[str, Constant] = {"ADD": int(add), "BIAS": int(bias), "EARLY": int(self.early)}
        args: dict[str, Argument] = {"out": "parts" if apart else "out"}
        args |= {"add": "add" if add else None, "bias": "bias" if bias else None, "N": self.layout.rows}
        return constants, args

    def _items(self) -> dict[str, Argument]:
        return {name: name if self.grouped else None for name in ("expert", "source")}

    def _gemv(self) -> Call:
        constants, args = self._after()
        shape = Shape.of(self.layout, 1 if self.grouped else self.tokens, "q8")
        items = self.tokens if self.grouped else 1
        grid = (shape.programs(self.layout.groups, self.processors, items), items, 1)
        more, names = shape.call(self.layout)
        constants |= {**more, "GROUPED": int(self.grouped)}
        args |= {**names, **self._items(), "groups": self.layout.groups, "count": 1 if self.grouped else self.tokens}
        return Call("gemv.gemv", grid, constants, args, shape.warps)

    def _gemv_plain(self) -> Call:
        constants, args = self._after()
        block, rows = min(2048, power(self.layout.padded)), 2
        constants |= {"K": self.layout.padded, "ROWS": rows, "BK": block, "GROUPED": int(self.grouped)}
        constants |= {"M": 1 if self.grouped else power(self.tokens), "POWERS": int(self.activation == "f16")}
        args |= {**self._plain(), **self._items(), "count": 1 if self.grouped else self.tokens}
        grid = (-(-self.layout.rows // rows), self.tokens if self.grouped else 1, 1)
        return Call("plain.gemv_plain", grid, constants, args, warps=8)

    def _plain(self) -> dict[str, Argument]:
        powers = self.activation == "f16"
        weight = "image" if self.dequantized else "low"
        return {"x": "xf" if powers else "x", "xe": "xe" if powers else None, "low": weight, "gain": self.gain}

    @property
    def _tokens_at_once(self) -> int:
        """Tokens to a program: all, if they are few, or about as many as an expert has."""
        most = -(-self.tokens // self.layout.experts) if self.grouped else self.tokens
        if -(-self.layout.rows // 128) * (most // 256) >= self.processors and self.activation == "f16":
            return 256 if self._narrow else 128
        return max(16, min(128, power(most)))

    @property
    def _narrow(self) -> bool:
        """Whether tiles of 128 rows leave shared memory for 256 tokens."""
        form = self.layout.form
        return self.dequantized or form is None or (form.low <= 4 and not form.high)

    def _blocks(self, tokens: int) -> int:
        """Blocks of tokens; of grouped ones, each expert may have one that is not full."""
        return -(-self.tokens // tokens) + (min(self.layout.experts, self.tokens) if self.grouped else 0)

    def _sorted(self) -> tuple[dict[str, Constant], dict[str, Argument]]:
        names = ("source", "order", "starts")
        return {"EXPERTS": self.layout.experts if self.grouped else 0}, {n: n if self.grouped else None for n in names}

    def _gemm(self) -> Call:
        layout, tokens = self.layout, self._tokens_at_once
        long, few = layout.tiles >= LONG, tokens <= 16
        wide = (tokens == 32 and self.split == 1) or (long and not few and self.split > 1)
        warps, stages = 8 if tokens > 64 or (wide and not self.grouped) else WARPS, 3
        if self._deep:
            stages = 6
        elif (tokens == 64 and self.split == 1) or (few and self.split > 1 and not long):
            stages = 4
        constants, args = self._after(self.split > 1)
        more, names = self._sorted()
        constants |= {"FORM": str(layout.form), "TILES": layout.tiles, "BM": tokens, "SPLIT": self.split, **more}
        constants |= {"WARPS": warps, "STAGES": stages, "WHOLE": int(tokens <= 32 and not self._deep)}
        args |= {"xf": "xf", "xe": "xe", **weight_names(layout), **names}
        args |= {"groups": layout.groups, "count": self.tokens, "gain": self.gain}
        grid = (-(-layout.groups // (2 * warps)), self._blocks(tokens), self.split)
        return Call("gemm.gemm", grid, constants, args, warps, stages)

    @property
    def _deep(self) -> bool:
        """Whether there is one program for each processor, so that much must be on its way to it."""
        blocks = -(-self.layout.rows // (16 * WARPS))
        short = self.layout.tiles < LONG and self._tokens_at_once <= 64
        return short and 2 * blocks <= self.processors and not self.grouped

    def _gemm_plain(self) -> Call:
        tokens, rows = self._tokens_at_once, 128 if self.tokens > 64 else 64
        constants, args = self._after(self.split > 1)
        more, names = self._sorted()
        exact = self.activation == "f32"
        constants |= {"K": self.layout.padded, "BM": tokens, "BN": rows, "BK": 32 if exact else 64, **more}
        constants |= {"SPLIT": self.split, "STAGES": 3, "SWEEP": 8, "POWERS": int(not exact)}
        args |= {**self._plain(), **names, "height": self.height, "count": self.tokens}
        grid = (-(-self.layout.rows // rows) * self._blocks(tokens), 1, self.split)
        return Call("plain.gemm_plain", grid, constants, args, warps=8 if rows == 128 else 4)

    def _image(self) -> Call:
        layout, step = self.layout, 2
        constants: dict[str, Constant] = {"FORM": str(layout.form), "TILES": layout.tiles, "WARPS": WARPS, "STEP": step}
        args = {**weight_names(layout), "out": "image", "groups": layout.groups * layout.experts, "gain": self.gain}
        grid = (-(-layout.groups * layout.experts // (2 * WARPS)), -(-layout.tiles // step), 1)
        return Call("dequantize.image", grid, constants, args)

    def _combine(self) -> Call:
        constants, args = self._after()
        constants |= {"SPLIT": self.split, "BLOCK": 1024, "GROUPED": int(self.grouped)}
        args |= {"parts": "parts", "xe": "xe", "source": "source" if self.grouped else None}
        args |= {"count": self.tokens, "gain": self.gain}
        return Call("gemm.combine", (-(-self.layout.rows // 1024), self.tokens, 1), constants, args)

    def _group(self) -> Call:
        args: dict[str, Argument] = {"expert": "expert", "order": "order", "starts": "starts", "count": self.tokens}
        return Call("grouping.group", (self.layout.experts, 1, 1), {"BLOCK": min(1024, power(self.tokens))}, args)


def gather(layout: Layout, count: int, stride: int, early: bool = False) -> Call:
    """Rows `ids` i32 [count] of a quantized weight, exactly, as float32 `out` [count, stride]: embeddings."""
    at_once = min(4, power(layout.units))
    constants: dict[str, Constant] = {
        "K": layout.columns,
        "FORM": str(layout.form),
        "TILES": layout.tiles,
        "T": at_once,
        "EARLY": int(early),
    }
    args: dict[str, Argument] = {**weight_names(layout), "ids": "ids", "out": "out", "stride": stride}
    return Call("dequantize.rows", (count, -(-layout.units // at_once), 1), constants, args)
