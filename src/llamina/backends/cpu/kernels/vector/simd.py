"""SIMD registers as values inside compiled functions: an LLVM vector type per shape, an intrinsic per operation.

Lanes are fixed at 256 bits; LLVM splits them on narrower machines. `+ - * & |` work between vectors of one type.
Only `dot_u8_i8` has a body per instruction set; everything else is plain LLVM.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from llamina.backends.cpu.features import HAS_AVX2
from llamina.backends.cpu.kernels.vector.memory import pointer

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()


class Vec(types.Type):  # type: ignore[misc]
    """A register of `n` elements."""

    def __init__(self, name: str, elem: ir.Type, n: int) -> None:
        self.ir = ir.VectorType(elem, n)
        self.is_float = elem in (F32, F64)
        super().__init__(name=f"vec_{name}")


@register_model(Vec)
class _VecModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, fe_type.ir)


i8x32, i8x16 = Vec("i8x32", I8, 32), Vec("i8x16", I8, 16)
i16x16, i16x8 = Vec("i16x16", I16, 16), Vec("i16x8", I16, 8)
i32x8, i32x4 = Vec("i32x8", I32, 8), Vec("i32x4", I32, 4)
f32x8, f64x8 = Vec("f32x8", F32, 8), Vec("f64x8", F64, 8)


def constant(vec: Vec, lanes: list[int] | list[float]) -> ir.Constant:
    return ir.Constant(vec.ir, lanes)


def intrinsic_call(b: Any, name: str, ret: ir.Type, args: list[Any]) -> Any:
    fn_type = ir.FunctionType(ret, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, fn_type, name), args)


def op(ret: Any, params: tuple[Any, ...], body: Callable[..., Any]) -> Any:
    """An intrinsic of fixed types: `body(builder, *llvm_values) -> llvm_value`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        out = body(builder, *args)
        return context.get_dummy_value() if out is None else out

    names = ", ".join(f"a{i}" for i in range(len(params)))  # numba wants a fixed parameter list
    scope = {"signature": ret(*params), "codegen": codegen}
    exec(f"def typed(context, {names}):\n    return signature, codegen", scope)
    return intrinsic(scope["typed"])


def _operators() -> None:
    names = {
        operator.add: ("add", "fadd"),
        operator.sub: ("sub", "fsub"),
        operator.mul: ("mul", "fmul"),
        operator.truediv: ("sdiv", "fdiv"),
        operator.and_: ("and_", "and_"),
        operator.or_: ("or_", "or_"),
        operator.xor: ("xor", "xor"),
    }
    for function, (integer, real) in names.items():

        class Typing(AbstractTemplate):  # type: ignore[misc]
            def generic(self, args: Any, kws: Any) -> Any:
                if len(args) == 2 and isinstance(args[0], Vec) and args[0] == args[1]:
                    return signature(args[0], args[0], args[1])
                return None

        infer_global(function)(Typing)

        def lower(context: Any, builder: Any, sig: Any, args: Any, integer: str = integer, real: str = real) -> Any:
            return getattr(builder, real if sig.return_type.is_float else integer)(*args)

        lower_builtin(function, Vec, Vec)(lower)


_operators()


# ---- memory -------------------------------------------------------------------------------------------------


def loader(vec: Vec) -> Any:
    def body(b: Any, address: Any) -> Any:
        value = b.load(pointer(b, address, vec.ir))
        value.align = 1
        return value

    return op(vec, (types.intp,), body)


def storer(vec: Vec) -> Any:
    def body(b: Any, address: Any, value: Any) -> None:
        b.store(value, pointer(b, address, vec.ir)).align = 1

    return op(types.void, (types.intp, vec), body)


load_i8x32, load_i8x16, load_i16x16 = (loader(v) for v in (i8x32, i8x16, i16x16))
load_i32x8, load_f32 = loader(i32x8), loader(f32x8)
store_f32, store_i8x32, store_i16x16, store_i32x8 = (storer(v) for v in (f32x8, i8x32, i16x16, i32x8))


def _lane_mask(b: Any, n: Any, lanes: int) -> Any:
    """i1 lanes 0..n-1 set."""
    ints = ir.VectorType(I32, lanes)
    undef = ir.Constant(ints, ir.Undefined)
    count = b.insert_element(undef, b.trunc(n, I32), I32(0))
    splat = b.shuffle_vector(count, undef, ir.Constant(ints, [0] * lanes))
    return b.icmp_signed("<", ir.Constant(ints, list(range(lanes))), splat)


def part_loader(vec: Vec) -> Any:
    """(address, n) → the first n lanes of float32 from memory, zeros in the others."""
    lanes = vec.ir.count

    def body(b: Any, address: Any, n: Any) -> Any:
        args = [pointer(b, address, vec.ir), I32(1), _lane_mask(b, n, lanes), constant(vec, [0.0] * lanes)]
        return intrinsic_call(b, f"llvm.masked.load.v{lanes}f32.p0", vec.ir, args)

    return op(vec, (types.intp, types.intp), body)


def part_storer(vec: Vec) -> Any:
    """(address, register, n): its first n lanes of float32 to memory."""
    lanes = vec.ir.count

    def body(b: Any, address: Any, value: Any, n: Any) -> None:
        args = [value, pointer(b, address, vec.ir), I32(1), _lane_mask(b, n, lanes)]
        intrinsic_call(b, f"llvm.masked.store.v{lanes}f32.p0", ir.VoidType(), args)

    return op(types.void, (types.intp, vec, types.intp), body)


load_f32_part, store_f32_part = part_loader(f32x8), part_storer(f32x8)


# ---- lanes --------------------------------------------------------------------------------------------------


def splat_of(vec: Vec, scalar: Any) -> Any:
    n = vec.ir.count

    def body(b: Any, x: Any) -> Any:
        undef = ir.Constant(vec.ir, ir.Undefined)
        return b.shuffle_vector(b.insert_element(undef, x, I32(0)), undef, ir.Constant(ir.VectorType(I32, n), [0] * n))

    return op(vec, (scalar,), body)


def math_of(vec: Vec, name: str, params: int = 1) -> Any:
    """One of LLVM's functions of float32, such as `sqrt`."""
    name = f"llvm.{name}.v{vec.ir.count}f32"
    return op(vec, (vec,) * params, lambda b, *args: intrinsic_call(b, name, vec.ir, list(args)))


def fma_of(vec: Vec) -> Any:
    return math_of(vec, "fma", 3)


def max_of(vec: Vec) -> Any:
    """(x, y) → x if it is greater, else y."""
    return op(vec, (vec, vec), lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


def min_of(vec: Vec) -> Any:
    return op(vec, (vec, vec), lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))


def fill_of(vec: Vec, value: float) -> Any:
    """A register of one constant."""
    n = vec.ir.count
    return op(vec, (), lambda b: constant(vec, [value] * n))


def shuffle_of(source: Vec, target: Vec, lanes: list[int]) -> Any:
    """Lanes picked at compile time."""
    index = ir.Constant(ir.VectorType(I32, len(lanes)), lanes)
    undef = ir.Constant(source.ir, ir.Undefined)
    return op(target, (source,), lambda b, x: b.shuffle_vector(x, undef, index))


def kept_shuffle(vec: Vec, lanes: list[int]) -> Any:
    """The same, but not to be merged with the shuffles of what comes out, where each by itself is one instruction."""
    index, undef = ir.Constant(ir.VectorType(I32, len(lanes)), lanes), ir.Constant(vec.ir, ir.Undefined)

    def body(b: Any, x: Any) -> Any:
        value = b.shuffle_vector(x, undef, index)
        return b.asm(ir.FunctionType(vec.ir, [vec.ir]), "", "=x,0", [value], False) if HAS_AVX2 else value

    return op(vec, (vec,), body)


def _greater(b: Any, x: Any, y: Any) -> Any:
    x, y = b.bitcast(x, i32x8.ir), b.bitcast(y, i32x8.ir)
    return b.select(b.icmp_signed(">", x, y), x, y)


def _htop(b: Any, value: Any) -> Any:
    value = b.bitcast(value, i32x8.ir)
    for step in (4, 2, 1):
        index = ir.Constant(i32x8.ir, [(i + step) % 8 for i in range(8)])
        value = _greater(b, value, b.shuffle_vector(value, value, index))
    return b.extract_element(b.bitcast(value, f32x8.ir), I32(0))


splat_f32, splat_i32 = splat_of(f32x8, types.float32), splat_of(i32x8, types.int32)
zero_f32, zero_i32 = fill_of(f32x8, 0.0), fill_of(i32x8, 0)
zero_f64, splat_f64 = fill_of(f64x8, 0.0), splat_of(f64x8, types.float64)
cvt_f32 = op(f32x8, (i32x8,), lambda b, x: b.sitofp(x, f32x8.ir))
to_f64 = op(f64x8, (f32x8,), lambda b, x: b.fpext(x, f64x8.ir))
first_f64 = op(f64x8, (f64x8, types.intp), lambda b, x, n: b.select(_lane_mask(b, n, 8), x, constant(f64x8, [0.0] * 8)))
"""The first n lanes, zeros in the others."""
widen_i8 = op(i16x16, (i8x16,), lambda b, x: b.sext(x, i16x16.ir))
fma = fma_of(f32x8)
abs_f32, round_f32 = math_of(f32x8, "fabs"), math_of(f32x8, "rint")
max_f32, min_f32 = max_of(f32x8), min_of(f32x8)
top_f32 = op(f32x8, (f32x8, f32x8), lambda b, x, y: b.bitcast(_greater(b, x, y), f32x8.ir))
"""The greater of numbers without a sign, NaN being greater than all: as integers they are in that order."""
to_i32 = op(i32x8, (f32x8,), lambda b, x: b.fptosi(x, i32x8.ir))
first_f32 = op(types.float32, (f32x8,), lambda b, x: b.extract_element(x, I32(0)))


def _iota(b: Any) -> Any:
    return constant(i32x8, list(range(8)))


iota_i32 = op(i32x8, (), _iota)


def _narrow(b: Any, *quarters: Any) -> Any:
    """Four registers of numbers that fit a byte, as bytes."""
    if HAS_AVX2:
        near, far = (intrinsic_call(b, "llvm.x86.avx2.packssdw", i16x16.ir, list(quarters[i : i + 2])) for i in (0, 2))
        mixed = b.bitcast(intrinsic_call(b, "llvm.x86.avx2.packsswb", i8x32.ir, [near, far]), i32x8.ir)
        order = ir.Constant(i32x8.ir, [0, 4, 1, 5, 2, 6, 3, 7])  # it packs halves of registers by themselves
        return b.bitcast(b.shuffle_vector(mixed, mixed, order), i8x32.ir)
    near, far = (
        b.shuffle_vector(*quarters[i : i + 2], ir.Constant(ir.VectorType(I32, 16), list(range(16)))) for i in (0, 2)
    )
    whole = b.shuffle_vector(near, far, ir.Constant(ir.VectorType(I32, 32), list(range(32))))
    return b.trunc(whole, i8x32.ir)


narrow_i8 = op(i8x32, (i32x8,) * 4, _narrow)


def _hsum(b: Any, value: Any) -> Any:
    """A fixed tree: lanes 4 apart, 2 apart, 1 apart."""
    undef = ir.Constant(value.type, ir.Undefined)
    for step in (4, 2, 1):
        index = ir.Constant(i32x8.ir, [(i + step) % 8 for i in range(8)])
        value = b.fadd(value, b.shuffle_vector(value, undef, index))
    return b.extract_element(value, I32(0))


def _extreme(order: str) -> Any:
    def body(b: Any, value: Any) -> Any:
        undef = ir.Constant(f32x8.ir, ir.Undefined)
        for step in (4, 2, 1):
            index = ir.Constant(i32x8.ir, [(i + step) % 8 for i in range(8)])
            other = b.shuffle_vector(value, undef, index)
            value = b.select(b.fcmp_ordered(order, value, other), value, other)
        return b.extract_element(value, I32(0))

    return body


hsum_f32, hsum_f64 = op(types.float32, (f32x8,), _hsum), op(types.float64, (f64x8,), _hsum)
hmax_f32 = op(types.float32, (f32x8,), _extreme(">"))
hmin_f32 = op(types.float32, (f32x8,), _extreme("<"))
htop_f32 = op(types.float32, (f32x8,), _htop)


def _pair_sums(b: Any, x: Any, y: Any, add: str) -> Any:
    """Neighbours added: x's pairs and y's pairs, interleaved by halves of 4 lanes as x86's hadd does."""
    index_type = i32x8.ir
    even = b.shuffle_vector(x, y, ir.Constant(index_type, [0, 2, 8, 10, 4, 6, 12, 14]))
    odd = b.shuffle_vector(x, y, ir.Constant(index_type, [1, 3, 9, 11, 5, 7, 13, 15]))
    return getattr(b, add)(even, odd)


def _half_sums(b: Any, rows: tuple[Any, ...], add: str) -> tuple[Any, Any]:
    """Eight registers → two whose lanes r are the sums of register r's lower and upper lanes."""
    pairs = [_pair_sums(b, rows[i], rows[i + 1], add) for i in (0, 2, 4, 6)]
    low, high = _pair_sums(b, pairs[0], pairs[1], add), _pair_sums(b, pairs[2], pairs[3], add)
    near = b.shuffle_vector(low, high, ir.Constant(i32x8.ir, [0, 1, 2, 3, 8, 9, 10, 11]))
    return near, b.shuffle_vector(low, high, ir.Constant(i32x8.ir, [4, 5, 6, 7, 12, 13, 14, 15]))


def _row_sums(add: str) -> Any:
    """Eight registers → one whose lane r is the sum of register r's lanes, always in the same order."""
    return lambda b, *rows: getattr(b, add)(*_half_sums(b, rows, add))


def _half_row_sums(b: Any, *rows: Any) -> Any:
    low, high = (_pair_sums(b, rows[i], rows[i + 1], "add") for i in (0, 2))
    return _pair_sums(b, low, high, "add")


def _two_sums(b: Any, x: Any, y: Any) -> Any:
    pairs = _pair_sums(b, x, y, "add")
    fours = _pair_sums(b, pairs, pairs, "add")
    both = b.add(fours, b.shuffle_vector(fours, fours, ir.Constant(i32x8.ir, [4, 5, 6, 7, 0, 1, 2, 3])))
    return b.extract_element(b.bitcast(both, ir.VectorType(I64, 4)), I32(0))


two_sums_i32 = op(types.intp, (i32x8, i32x8), _two_sums)
"""The sums of two registers' lanes, in the halves of 64 bits."""
near_sums_i32, far_sums_i32 = (
    op(i32x8, (i32x8,) * 8, lambda b, *rows, half=half: _half_sums(b, rows, "add")[half]) for half in (0, 1)
)
"""Of eight registers, the sums of their lanes 0 to 3, or of 4 to 7."""
row_sums_i32 = op(i32x8, (i32x8,) * 8, _row_sums("add"))
half_row_sums_i32 = op(i32x8, (i32x8,) * 4, _half_row_sums)
"""Four registers → the sums of their lanes 0 to 3, then those of their lanes 4 to 7."""
row_sums_f32 = op(f32x8, (f32x8,) * 8, _row_sums("fadd"))


def mask(value: int) -> Any:
    return op(i8x32, (i8x32,), lambda b, x: b.and_(x, constant(i8x32, [value] * 32)))


def _within(b: Any, x: Any, low: Any, high: Any, yes: Any, no: Any) -> Any:
    inside = b.and_(b.icmp_signed(">=", x, low), b.icmp_signed("<=", x, high))
    return b.select(inside, yes, no)


within = op(f32x8, (i32x8, i32x8, i32x8, f32x8, f32x8), _within)
"""`yes` where low ≤ x ≤ high, `no` elsewhere."""


def gathered(b: Any, kind: ir.VectorType, addresses: tuple[Any, ...]) -> Any:
    """A lane from each of eight places."""
    value = ir.Constant(kind, ir.Undefined)
    for i, address in enumerate(addresses):
        lane = b.load(pointer(b, address, kind.element))
        lane.align = 1
        value = b.insert_element(value, lane, I32(i))
    return value


def lower_halves(b: Any, *addresses: Any) -> Any:
    return b.fpext(b.bitcast(gathered(b, i16x8.ir, addresses), ir.VectorType(ir.HalfType(), 8)), f32x8.ir)


def float_halves(b: Any, words: Any, n: int) -> Any:
    """The lower (n = 0) or upper halves of eight words, float16 numbers."""
    halves = b.bitcast(words, i16x16.ir)
    picked = b.shuffle_vector(halves, halves, ir.Constant(i32x8.ir, list(range(n, 16, 2))))
    return b.fpext(b.bitcast(picked, ir.VectorType(ir.HalfType(), 8)), f32x8.ir)


gather_f16, gather_words = (
    op(f32x8, (types.intp,) * 8, lower_halves),
    op(i32x8, (types.intp,) * 8, lambda b, *addresses: gathered(b, i32x8.ir, addresses)),
)
"""Eight float16 numbers, or words, from eight places."""
