"""Products of a token or two that begin with what comes before them and end with what comes after: fewer kernels.

    fits(layout, tokens)                            whether a program can hold all of a row, which these need
    single(layout, tokens, "norm", stride, eps)     norm(x) · wᵀ
    single(layout, tokens, "f32", stride, add=True) x · wᵀ + add
    gated(layout, tokens, "norm", "silu", …)        silu(norm(x) · wᵀ) · (norm(x) · w2ᵀ), matrices of one format
    together([q, k, v], tokens, "norm", …)          two or three matrices of any formats times the same rows

Each is one `Call`. Names to put in: x f32 (rows `stride` apart), norm f32 [columns] (of "norm"; "q8" reads a
prepared activation instead), the layouts' arrays (of the second and third with 2 and 3 behind their names), out
(out2, out3), add, bias (bias2, bias3).
"""

from collections.abc import Sequence

from llamina.backends.cuda.kernels.calls import Argument, Call, Input, Shape, weight_names
from llamina.backends.cuda.kernels.layout import Layout
from llamina.backends.cuda.kernels.products import LONG

PROCESSORS = 132


def fits(layout: Layout, tokens: int) -> bool:
    """Whether programs hold the activations of whole rows; long ones are quantized once rather than by each of them."""
    if layout.form is None or layout.tiles > LONG:
        return False
    return Shape.of(layout, tokens, "f32").whole(layout)


def single(
    layout: Layout,
    tokens: int,
    input: Input,
    stride: int = 0,
    eps: float = 0.0,
    add: bool = False,
    bias: bool = False,
    early: bool = False,
    processors: int = PROCESSORS,
) -> Call:
    return _call(layout, tokens, input, "", stride, eps, add, bias, early, processors)


def gated(
    layout: Layout,
    tokens: int,
    input: Input,
    activation: str,
    stride: int = 0,
    eps: float = 0.0,
    early: bool = False,
    processors: int = PROCESSORS,
) -> Call:
    return _call(layout, tokens, input, activation, stride, eps, False, False, early, processors)


def _call(
    layout: Layout,
    tokens: int,
    input: Input,
    pair: str,
    stride: int,
    eps: float,
    add: bool,
    bias: bool,
    early: bool,
    processors: int,
) -> Call:
    shape = Shape.of(layout, tokens, input)
    constants, args = shape.call(layout, pair)
    constants |= {"ADD": int(add), "BIAS": int(bias), "GROUPED": 0, "EARLY": int(early)}
    args |= _numbers(args, stride, eps) | {"expert": None, "source": None, "out": "out", "N": layout.rows}
    args |= {"add": "add" if add else None, "bias": "bias" if bias else None}
    args |= {"groups": layout.groups, "count": tokens}
    grid = (shape.programs(layout.groups, processors), 1, 1)
    return Call("gemv.gemv", grid, constants, args, shape.warps)


def _numbers(args: dict[str, Argument], stride: int, eps: float) -> dict[str, Argument]:
    return {"stride": stride if args["stride"] else None, "eps": eps if args["eps"] else None}


def together(
    layouts: Sequence[Layout],
    tokens: int,
    input: Input,
    stride: int = 0,
    eps: float = 0.0,
    bias: bool = False,
    early: bool = False,
    processors: int = PROCESSORS,
) -> Call:
    shapes = [Shape.of(layout, tokens, input) for layout in layouts]
    total = shapes[0].programs(sum(layout.groups for layout in layouts), processors)
    every = sum(layout.nbytes for layout in layouts)
    shares = [max(1, round(total * layout.nbytes / every)) for layout in layouts]
    constants, args = shapes[0].call(layouts[0])
    del constants["PAIR"]
    constants |= {"BIAS": int(bias), "EARLY": int(early), "STAGES": 2 if layouts[0].tiles > 64 else 3}
    args |= _numbers(args, stride, eps) | {"count": tokens, "programs": shares[0], "programs2": shares[1]}
    for i, end in enumerate(("", "2", "3")):
        at = min(i, len(layouts) - 1)  # without a third, no program is left for it, but the kernel has it
        layout, same = layouts[at], ("", "2", "3")[at]
        constants |= {f"FORM{end}": str(layout.form), f"T{end}": shapes[at].units}
        args |= {f"{name}{end}": value and f"{value}{same}" for name, value in weight_names(layout).items()}
        args |= {f"out{end}": f"out{same}", f"bias{end}": f"bias{same}" if bias else None}
        args |= {f"N{end}": layout.rows, f"groups{end}": layout.groups}
    return Call("gemv.gemv_three", (sum(shares), 1, 1), constants, args, max(shape.warps for shape in shapes))
