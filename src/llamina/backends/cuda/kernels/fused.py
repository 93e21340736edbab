"""Products of one token, or two, that begin with what comes before them and end with what comes after: fewer kernels.

    fits(layout, tokens) → whether a program can hold all of a row, which these need
    single(layout, tokens, "norm", eps=1e-5, stride=…)           norm(x) · wᵀ
    single(layout, tokens, "f32", stride=…, add=True)            x · wᵀ + add
    gated(layout, tokens, "norm", "silu", …)                     silu(norm(x) · wᵀ) · (norm(x) · w2ᵀ), matrices of one format
    together([q, k, v], tokens, "norm", …)                       two or three matrices of any formats times the same rows

Each is one `Call`. Names to put in: x f32 (rows `stride` apart), norm f32 [columns] (of "norm"; "q8" reads a prepared activation), the
layouts' arrays (of the second and third with 2 and 3 behind their names), out (out2, out3), add, bias (bias2, bias3).
"""

from collections.abc import Sequence

from llamina.backends.cuda.kernels.calls import ARRAYS, Argument, Call, Input, Shape, weight_names
from llamina.backends.cuda.kernels.layout import Layout

PROCESSORS = 132


def fits(layout: Layout, tokens: int) -> bool:
    """Whether programs hold the activations of whole rows."""
    if layout.form is None:
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
    warps = max(shape.warps for shape in shapes)
    bytes_of = [layout.nbytes for layout in layouts]
    total = shapes[0].programs(sum(layout.groups for layout in layouts), processors)
    shares = [max(1, round(total * n / sum(bytes_of))) for n in bytes_of]
    constants, args = shapes[0].call(layouts[0])
    del constants["PAIR"], constants["FORM"], constants["T"]
    args |= _numbers(args, stride, eps) | {"count": tokens, "programs": shares[0], "programs2": shares[1]}
    constants |= {"BIAS": int(bias), "EARLY": int(early)}
    for i in range(3):
        layout, end = layouts[min(i, len(layouts) - 1)], "" if i == 0 else str(i + 1)
        shape = shapes[min(i, len(layouts) - 1)]
        constants |= {f"FORM{end}": str(layout.form), f"T{end}": shape.units}
        names = weight_names(layout) if i < len(layouts) else dict.fromkeys(ARRAYS)
        args |= {f"{k}{end}": v and f"{v}{end}" for k, v in names.items()}
        args |= {f"out{end}": f"out{end}" if i < len(layouts) else None, f"bias{end}": f"bias{end}" if bias else None}
        args |= {f"N{end}": layout.rows, f"groups{end}": layout.groups}
    return Call("gemv.gemv_three", (sum(shares), 1, 1), constants, args, warps)
