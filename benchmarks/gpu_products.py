"""Checks and times the GPU's matrix products: every format against NumPy, and the shapes of Llama-3-8B for many
numbers of tokens.

    python benchmarks/gpu_products.py check
    python benchmarks/gpu_products.py time [--formats Q4_K,Q6_K] [--tokens 1,8,32] [--json out.json]

Kernels are compiled for the GPU by several processes and launched by the driver; torch only keeps the arrays and
captures graphs. Times are medians of replays of a graph that goes through more copies of a weight than the cache
holds.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from llamina.backends.cuda.kernels.calls import Call
from llamina.backends.cuda.kernels.formats import FORMS
from llamina.backends.cuda.kernels.layout import Layout
from llamina.backends.cuda.kernels.products import Product, activation_arrays, prepare
from llamina.quant import decode, format_of

PEAK = 4.24e12  # bytes a second that an H200 reads
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "i32": torch.int32, "i8": torch.int8}
NAMES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.int32: "*i32", torch.int8: "*i8"}
SHAPES = [(4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336), (128256, 4096)]
cuda: Any = None


# ---- kernels ----------------------------------------------------------------------------------------------------


def build(key: tuple[Any, ...]) -> tuple[bytes, str, int, int]:
    """Compile in a process of its own: machine code, entry, threads, shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, types, constants, warps, stages = key
    file, name = kernel.split(".")
    function = getattr(import_module(f"llamina.backends.cuda.kernels.{file}"), name)
    names, kinds, values = function.arg_names, dict(types), dict(constants)
    signature = {n: kinds.get(n, "constexpr") for n in names}
    fixed = {(names.index(n),): v for n, v in values.items()}
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n, t in types if t.startswith("*")}
    made = triton.compile(
        ASTSource(function, signature, fixed, aligned),
        GPUTarget("cuda", 90, 32),
        {"num_warps": warps, "num_stages": stages},
    )
    return made.asm["cubin"], made.metadata.name, 32 * made.metadata.num_warps, made.metadata.shared


class Kernels:
    """Compiled kernels by what they are compiled for."""

    def __init__(self) -> None:
        global cuda
        torch.zeros(1, device="cuda")
        cuda = ctypes.CDLL("libcuda.so.1")
        self.loaded: dict[tuple[Any, ...], tuple[Any, int, int, list[str]]] = {}

    @staticmethod
    def key(call: Call, arrays: dict[str, Any]) -> tuple[Any, ...]:
        types, constants = [], list(call.constants.items())
        for name, value in call.args.items():
            if value is None:
                constants.append((name, None))
            elif isinstance(value, str):
                types.append((name, NAMES[arrays[value].dtype]))
            else:
                types.append((name, "fp32" if isinstance(value, float) else "i32"))
        return call.kernel, tuple(types), tuple(constants), call.warps, call.stages

    def compile(self, wanted: list[tuple[Call, dict[str, Any]]]) -> None:
        keys = [k for k in dict.fromkeys(self.key(c, a) for c, a in wanted) if k not in self.loaded]
        if not keys:
            return
        with ProcessPoolExecutor(min(len(keys), os.cpu_count() or 1), get_context("spawn")) as pool:
            for key, (binary, entry, threads, shared) in zip(keys, pool.map(build, keys), strict=True):
                if shared > 227 << 10:
                    continue  # more than a processor has
                module, handle = ctypes.c_void_p(), ctypes.c_void_p()
                check(cuda.cuModuleLoadData(ctypes.byref(module), binary))
                check(cuda.cuModuleGetFunction(ctypes.byref(handle), module, entry.encode()))
                if shared > 48 << 10:
                    check(cuda.cuFuncSetAttribute(handle, 8, shared))
                kernel, types, _, _, _ = key
                file, name = kernel.split(".")
                order = getattr(import_module(f"llamina.backends.cuda.kernels.{file}"), name).arg_names
                kinds = dict(types)
                self.loaded[key] = handle, threads, shared, [n for n in order if n in kinds]

    def launch(self, call: Call, arrays: dict[str, Any]) -> None:
        handle, threads, shared, order = self.loaded[self.key(call, arrays)]
        values: list[Any] = []
        for name in order:
            value = call.args[name]
            if isinstance(value, str):
                values.append(ctypes.c_void_p(arrays[value].data_ptr()))
            else:
                values.append(ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value))
        values += [ctypes.c_void_p(0), ctypes.c_void_p(0)]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        early = Attribute(6, b"", 1, b"")
        config = Config(
            *call.grid, threads, 1, 1, shared, stream, ctypes.pointer(early), call.constants.get("EARLY", 0)
        )
        check(cuda.cuLaunchKernelEx(ctypes.byref(config), handle, pointers, None))


class Attribute(ctypes.Structure):
    """CUlaunchAttribute; 6 is programmatic stream serialization."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def check(result: int) -> None:
    if result:
        raise SystemExit(f"CUDA driver error {result}")


# ---- arrays -----------------------------------------------------------------------------------------------------


def spaces(product: Product, rows: int) -> dict[str, torch.Tensor]:
    """Activation, workspace and result, poisoned."""
    arrays = {**activation_arrays(product.activation, rows, product.layout), **product.workspace}
    made = {n: torch.full(a.shape, 77, dtype=TYPES[a.type], device="cuda") for n, a in arrays.items()}
    return made | {"out": torch.full((product.tokens, product.layout.rows), float("nan"), device="cuda")}


def random_weight(layout: Layout) -> dict[str, torch.Tensor]:
    """Arrays of a weight as they might be, with scales of a usual size."""
    made = {}
    for name, array in layout.arrays.items():
        if array.type == "i32":
            made[name] = torch.randint(-(2**31), 2**31 - 1, array.shape, dtype=torch.int32, device="cuda")
        elif name == "low":
            made[name] = torch.randn(array.shape, dtype=TYPES[array.type], device="cuda") * 0.02
        else:
            made[name] = torch.full(array.shape, 1e-5, device="cuda")
    form = layout.form
    if form and form.scales == "u6 min":
        made["scale"][..., 0] = 0x1225068E  # d 1e-4, dmin 7.5e-4
    elif form and form.scales.startswith("f16"):
        made["scale"].fill_(0x12251225)
    elif form and form.scales == "u4 min for 16":
        made["top"].fill_(0x1225068E)
    return made


def random_activation(product: Product, made: dict[str, torch.Tensor]) -> None:
    for name in ("x8", "xs"):
        if name in made:
            made[name].random_(-100, 100)
    for name in ("xd", "xe"):
        if name in made:
            made[name].fill_(0.01)
    for name in ("xf", "x"):
        if name in made:
            made[name].normal_()
    if "expert" in made:
        made["expert"].random_(0, product.layout.experts)


# ---- checks -----------------------------------------------------------------------------------------------------


def stored(kind: str, rows: int, columns: int, rng: np.random.Generator) -> Any:
    """A random weight's bytes: those of blocks are random, but for float16 scales, which are usual numbers."""
    form = format_of(kind)
    if form.block == 1:
        assert form.encode
        return form.encode(rng.standard_normal(rows * columns).astype(np.float32)).reshape(rows, -1)
    data = rng.integers(0, 256, (rows * columns // form.block, form.nbytes), np.uint8)
    values = decode(data, kind)
    good = np.isfinite(values).all(-1) & (np.abs(values).max(-1) < 3e4) & (np.abs(values).max(-1) > 1e-3)
    return data[good][rng.integers(0, good.sum(), len(data))].reshape(rows, -1)


def rel(got: Any, want: Any) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def check_all(kernels: Kernels) -> bool:
    """Every format with few, some and many tokens; rows of embeddings; experts; equal bits."""
    rng, jobs, fine = np.random.default_rng(0), [], True
    for kind in [*FORMS, "F32", "F16", "BF16"]:
        rows, columns = 328, 768
        data = stored(kind, rows, columns, rng)
        layout = Layout.of(kind, rows, columns)
        arrays = {n: torch.from_numpy(np.ascontiguousarray(v)).cuda() for n, v in layout.pack(data).items()}
        truth, gain = decode(data, kind).astype(np.float64), layout.gain(data)
        for tokens, exact in ((1, False), (3, False), (5, False), (600, False), (1, True), (33, True), (600, True)):
            product = Product(layout, tokens, gain, exact=exact)
            jobs.append((kind, product, arrays | spaces(product, tokens), truth))
    wanted = []
    x = torch.randn(600, 768, device="cuda")
    x[0] *= 1e5
    for _, product, arrays, _ in jobs:
        arrays["x"] = x
        first = prepare(product.activation, product.tokens, product.layout, 768)
        wanted += [(c, arrays) for c in [*([first] if first else []), *product.calls]]
    kernels.compile(wanted)
    same: dict[str, Any] = {}
    for kind, product, arrays, truth in jobs:
        first = prepare(product.activation, product.tokens, product.layout, 768)
        for call in [*([first] if first else []), *product.calls]:
            kernels.launch(call, arrays)
        got = arrays["out"].cpu().numpy()
        want = x[: product.tokens].cpu().numpy().astype(np.float64) @ truth.T
        errors = [rel(g, w) for g, w in zip(got, want, strict=True)]
        most = {"q8": 2e-2, "f16": 2e-3, "f32": 1e-5}[product.activation]
        ok = max(errors) < most
        if product.exact:
            before = same.setdefault(kind, got)
            equal = np.array_equal(before[:1], got[:1])
            ok &= equal
            note = "" if equal else " BITS DIFFER"
        else:
            note = ""
        if not ok or note:
            fine = False
        if not ok or product.tokens in (1, 600):
            print(
                f"{kind:8} {product.tokens:4} tokens {product.activation}: error {max(errors):.1e}{note}"
                f"{'' if ok else ' WRONG'}"
            )
    return fine


# ---- times ------------------------------------------------------------------------------------------------------


def microseconds(kernels: Kernels, calls: list[Call], sets: list[dict[str, torch.Tensor]], reps: int = 7) -> float:
    """The median time of the calls for one of the sets."""
    for call in calls:
        kernels.launch(call, sets[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for arrays in sets:
            for call in calls:
                kernels.launch(call, arrays)
    times = []
    for _ in range(reps + 1):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / len(sets))
    return statistics.median(times[1:])


def weight_sets(layout: Layout, most: int = 64) -> list[dict[str, torch.Tensor]]:
    return [random_weight(layout) for _ in range(max(2, min(most, int(3e8 / layout.nbytes))))]


def time_all(kernels: Kernels, formats: list[str], tokens: list[int], exact: bool) -> list[dict[str, Any]]:
    products = [
        Product(Layout.of(kind, rows, columns), count, 2.0**-6, exact=exact)
        for kind in formats for rows, columns in SHAPES for count in tokens
    ]  # fmt: skip
    shells = [
        (p, {n: torch.empty(1, dtype=TYPES[a.type], device="cuda") for n, a in p.layout.arrays.items()})
        for p in products
    ]
    wanted = []
    for product, arrays in shells:
        wanted += [(c, arrays | spaces(product, product.tokens)) for c in product.calls]
    kernels.compile(wanted)
    rows = []
    weights: tuple[Layout, list[dict[str, torch.Tensor]]] | None = None
    for product in products:
        if weights is None or weights[0] != product.layout:
            weights = product.layout, weight_sets(product.layout)
        space = spaces(product, product.tokens)
        random_activation(product, space)
        us = microseconds(kernels, product.calls, [w | space for w in weights[1]])
        size = product.layout.nbytes
        flops = 2 * product.tokens * product.layout.rows * product.layout.columns
        row = {
            "format": product.layout.format, "rows": product.layout.rows, "columns": product.layout.columns,
            "tokens": product.tokens, "us": round(us, 2), "GB/s": round(size / us / 1e3),
            "share": round(size / us * 1e6 / PEAK, 3),
            "TFLOP/s": round(flops / us / 1e6, 1),
        }  # fmt: skip
        rows.append(row)
        print(
            f"{row['format']:6} {row['rows']:6} x {row['columns']:5} {row['tokens']:5} tokens {us:9.1f} us "
            f"{row['GB/s']:6} GB/s {row['share']:6.1%} {row['TFLOP/s']:7.1f} TFLOP/s",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "time"])
    parser.add_argument("--formats", default="Q4_K,Q6_K,Q8_0,Q4_0,F16")
    parser.add_argument("--tokens", default="1,8,32,128,512,2048")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    kernels = Kernels()
    if options.what == "check":
        fine = check_all(kernels)
        print("all right" if fine else "WRONG")
        sys.exit(not fine)
    rows = time_all(kernels, options.formats.split(","), [int(n) for n in options.tokens.split(",")], options.exact)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
