"""The kernels that lay rows of a file out on the device.

    relay(layout, rows, first, stride, gain) → [Call, …]

`first` is the first of the rows, a multiple of 8, counted through all experts as the layout pads them
(`first_row`); `rows` may end where an expert does, and not go beyond. Names to put in: raw (u8: the rows' bytes,
`stride` apart), the layout's arrays, and table (u8: `table_of(format)`, for formats that have one). F32 weights are
copied as they are.
"""

from llamina.backends.cuda.kernels.calls import Argument, Call, Constant
from llamina.backends.cuda.kernels.codebooks import TABLES
from llamina.backends.cuda.kernels.formats import SCALE_BYTES
from llamina.backends.cuda.kernels.layout import GROUP, Layout
from llamina.quant import format_of
from llamina.quant.bits import U8


def table_of(format: str) -> U8 | None:
    """The codebook that `relay` reads."""
    return TABLES.get(format)


def first_row(layout: Layout, expert: int) -> int:
    """Where an expert's rows begin."""
    return expert * (layout.groups * GROUP if layout.form else layout.rows)


def relay(layout: Layout, rows: int, first: int, stride: int, gain: float = 1.0) -> list[Call]:
    form = layout.form
    args: dict[str, Argument] = {"raw": "raw", "rows": rows, "stride": stride, "first": first}
    if form is None:
        constants: dict[str, Constant] = {"COLUMNS": layout.columns, "PADDED": layout.padded, "KIND": layout.format}
        grid = (rows, -(-layout.padded // 1024), 1)
        return [Call("relay.halves", grid, constants | {"BLOCK": 1024}, args | {"out": "low", "gain": gain})]
    kind = format_of(layout.format)
    args["first"] = first // GROUP
    groups, units = -(-rows // GROUP), layout.units
    block: dict[str, Constant] = {
        "KIND": layout.format,
        "BLOCK": kind.block,
        "NBYTES": kind.nbytes,
        "COLUMNS": layout.columns,
    }
    calls = []
    for i, (name, width, shift) in enumerate((("low", form.low, 0), ("high", form.high, form.low))):
        if width:
            at, group = form.codes[i] if form.codes else (0, 0)
            constants = block | {"TILES": layout.tiles, "AT": at, "GROUP": group, "WIDTH": width, "SHIFT": shift}
            table: Argument = "table" if layout.format in TABLES else None
            calls.append(
                Call("relay.plane", (groups, layout.tiles, 1), constants, args | {"out": name, "table": table})
            )
    size = 16 if form.scales == "u6 min" else SCALE_BYTES[form.scales]
    whole = form.scales == "u6 min"
    constants = block | {"UNITS": units if whole else layout.tiles, "SIZE": size, **_bytes(layout.format, form.scale)}
    calls.append(
        Call("relay.scales", (groups, units if whole else layout.tiles, 1), constants, args | {"out": "scale"}, warps=1)
    )
    if "top" in layout.arrays:
        constants = {"KIND": layout.format, "NBYTES": kind.nbytes, "UNITS": units, "AT": form.top or 0}
        calls.append(
            Call("relay.tops", (groups, units, 1), constants, args | {"out": "top", "factor": form.factor}, warps=1)
        )
    return calls


def _bytes(format: str, scale: tuple[int, ...]) -> dict[str, Constant]:
    """Constants of `relay.scales`."""
    if format == "TQ1_0":
        scale = (52, 2, 8)
    if len(scale) == 4:
        at, group, more, among = scale
        return {"AT": at, "COUNT": 0, "TIMES": group, "MORE": more, "AMONG": among}
    at, count, times = scale or (0, 0, 1)
    return {"AT": at, "COUNT": count, "TIMES": times, "MORE": 0, "AMONG": 0}
