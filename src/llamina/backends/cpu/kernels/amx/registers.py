"""Matrix registers (AMX) and vectors of 16, as kernels use them."""

from typing import Any

from llvmlite import ir
from numba.core import types

from llamina.backends.cpu.kernels.device import device
from llamina.backends.cpu.kernels.vector.memory import pointer, set_i8, set_i64, stack_of
from llamina.backends.cpu.kernels.vector.simd import (
    F32,
    I32,
    I64,
    Vec,
    constant,
    i8x16,
    i8x32,
    i16x16,
    i32x8,
    intrinsic_call,
    op,
    splat_of,
)

f32x16, i32x16 = Vec("f32x16", F32, 16), Vec("i32x16", I32, 16)


# ---- registers ----------------------------------------------------------------------------------------------


def _asm(text: str, constraints: str, operands: int) -> Any:
    def body(b: Any, *args: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [I64] * operands)
        b.asm(kind, text, constraints, list(args), True)

    return op(types.void, (types.intp,) * operands, body)


def load_tile(n: int) -> Any:
    """16 rows of 64 (or 32) bytes, (address, stride) → matrix register n."""
    return _asm(f"tileloadd ($0,$1,1), %tmm{n}", "r,r,~{memory}", 2)


def store_tile(n: int) -> Any:
    return _asm(f"tilestored %tmm{n}, ($0,$1,1)", "r,r,~{memory}", 2)


def tile_dot(kinds: str, total: int, w: int, x: int) -> Any:
    """Register `total` += w · x, kinds being u or s for either of bytes, bf16 or fp16 for pairs of such numbers."""
    name = f"tdp{kinds}ps" if kinds in ("bf16", "fp16") else f"tdpb{kinds}d"
    return _asm(f"{name} %tmm{x}, %tmm{w}, %tmm{total}", "~{memory}", 0)


configure = _asm("ldtilecfg ($0)", "r,~{memory}", 1)
release = _asm("tilerelease", "~{memory}", 0)
zero_0, zero_1, zero_2, zero_3 = (_asm(f"tilezero %tmm{n}", "~{memory}", 0) for n in range(4))
load_4, load_5, load_6, load_7 = (load_tile(n) for n in range(4, 8))
load_0, load_1, load_2, load_3 = (load_tile(n) for n in range(4))
store_0, store_1, store_2, store_3 = (store_tile(n) for n in range(4))
us_046, ss_156, us_247, ss_357 = (
    tile_dot("us", 0, 4, 6), tile_dot("ss", 1, 5, 6), tile_dot("us", 2, 4, 7), tile_dot("ss", 3, 5, 7)
)  # fmt: skip
uu_046, us_156, uu_247, us_357 = (
    tile_dot("uu", 0, 4, 6), tile_dot("us", 1, 5, 6), tile_dot("uu", 2, 4, 7), tile_dot("us", 3, 5, 7)
)  # fmt: skip
ss_046, ss_147 = tile_dot("ss", 0, 4, 6), tile_dot("ss", 1, 4, 7)
config = stack_of(64)


@device
def set_up(depth, tokens):
    """Registers 0 to 3 hold sums; 4 and 5 `depth` bytes of 16 rows; 6 and 7 as many of up to 16 tokens, by fours."""
    c = config()
    for i in range(0, 64, 8):
        set_i64(c + i, 0)
    set_i8(c, 1)
    for n in range(8):
        set_i8(c + 16 + 2 * n, 4 * tokens if n < 4 or n >= 6 else depth)
        set_i8(c + 48 + n, depth // 4 if n >= 6 else 16)
    configure(c)


def dots_of(kind: str) -> tuple[Any, Any, Any, Any]:
    """Registers 4 and 5 times 6, onto 0 and 1; times 7, onto 2 and 3."""
    first, second, third, fourth = (tile_dot(kind, *n) for n in ((0, 4, 6), (1, 5, 6), (2, 4, 7), (3, 5, 7)))
    return first, second, third, fourth


# ---- vectors of 16 ------------------------------------------------------------------------------------------


def _load(vec: Vec) -> Any:
    def body(b: Any, address: Any) -> Any:
        value = b.load(pointer(b, address, vec.ir))
        value.align = 1
        return value

    return op(vec, (types.intp,), body)


def _store(b: Any, address: Any, value: Any) -> None:
    b.store(value, pointer(b, address, f32x16.ir)).align = 1


def _store_floats_part(b: Any, address: Any, value: Any, n: Any) -> None:
    splat = b.shuffle_vector(
        b.insert_element(ir.Constant(i32x16.ir, ir.Undefined), b.trunc(n, I32), I32(0)),
        ir.Constant(i32x16.ir, ir.Undefined),
        constant(i32x16, [0] * 16),
    )
    mask = b.icmp_signed("<", constant(i32x16, list(range(16))), splat)
    ptr = pointer(b, address, f32x16.ir)
    intrinsic_call(b, "llvm.masked.store.v16f32.p0", ir.VoidType(), [value, ptr, I32(1), mask])


load_floats, load_ints = _load(f32x16), _load(i32x16)
store_floats = op(types.void, (types.intp, f32x16), _store)
store_floats_part = op(types.void, (types.intp, f32x16, types.intp), _store_floats_part)
splat = splat_of(f32x16, types.float32)
zeros = op(f32x16, (), lambda b: constant(f32x16, [0.0] * 16))
to_f32 = op(f32x16, (i32x16,), lambda b, x: b.sitofp(x, f32x16.ir))
fma = op(f32x16, (f32x16,) * 3, lambda b, x, y, z: intrinsic_call(b, "llvm.fma.v16f32", f32x16.ir, [x, y, z]))
join = op(i32x16, (i32x16, i32x16), lambda b, low, high: b.add(low, b.shl(high, constant(i32x16, [8] * 16))))
"""lower + 256 · upper."""


def _transpose(b: Any, addresses: Any, offset: Any, target: Any) -> None:
    """16 words of 32 bits, `offset` bytes past each of 16 addresses → 16 rows of 16, the other way round."""
    rows = []
    for i in range(16):
        at = b.load(pointer(b, b.add(addresses, I64(8 * i)), I64))
        rows.append(b.load(pointer(b, b.add(at, offset), i32x16.ir)))
        rows[-1].align = 1
    for half in (1, 2, 4, 8):
        near = constant(i32x16, [16 + j - half if j & half else j for j in range(16)])
        far = constant(i32x16, [16 + j if j & half else j + half for j in range(16)])
        for i in range(16):
            if not i & half:
                a, c = rows[i], rows[i + half]
                rows[i], rows[i + half] = b.shuffle_vector(a, c, near), b.shuffle_vector(a, c, far)
    for i, row in enumerate(rows):
        b.store(row, pointer(b, b.add(target, I64(64 * i)), i32x16.ir)).align = 1


transpose = op(types.void, (types.intp,) * 3, _transpose)
sixteen = stack_of(128)  # addresses


def _choose(b: Any, mask: Any, yes: Any, no: Any) -> Any:
    """Bits of `yes` where the mask has ones, of `no` elsewhere; left to itself LLVM would shuffle bytes instead."""
    words = [mask, b.bitcast(yes, i32x8.ir), b.bitcast(no, i32x8.ir), I32(0xCA)]
    return intrinsic_call(b, "llvm.x86.avx512.pternlog.d.256", i32x8.ir, words)


def scaler(signed: bool, offset: int) -> Any:
    """(elements, address of two 16-bit scales, targets): (element - offset) · scale, its lower and its upper byte.

    Elements at even and at odd places are widened where they are: moving them would keep one port busy.
    """

    def body(b: Any, u: Any, scales: Any, lower: Any, upper: Any) -> None:
        def every(value: int) -> ir.Constant:
            return constant(i16x16, [value] * 16)

        pair = b.load(pointer(b, scales, ir.VectorType(ir.IntType(16), 2)))
        pair.align = 1
        lanes = ir.Constant(ir.VectorType(I32, 16), [0] * 8 + [1] * 8)
        scale = b.shuffle_vector(pair, ir.Constant(pair.type, ir.Undefined), lanes)
        both = b.bitcast(u, i16x16.ir)
        if signed:
            even, odd = b.ashr(b.shl(both, every(8)), every(8)), b.ashr(both, every(8))
        else:
            even, odd = b.and_(both, every(255)), b.lshr(both, every(8))
        even, odd = (b.mul(b.sub(x, every(offset)) if offset else x, scale) for x in (even, odd))
        mask = constant(i32x8, [0x00FF00FF] * 8)
        low = _choose(b, mask, even, b.shl(odd, every(8)))
        high = _choose(b, mask, b.lshr(even, every(8)), odd)
        for value, target in ((low, lower), (high, upper)):
            b.store(value, pointer(b, target, i32x8.ir)).align = 1

    return op(types.void, (i8x32, types.intp, types.intp, types.intp), body)


def table_scaler(name: str, levels: tuple[int, ...], signed: bool) -> Any:
    """The same for elements of 4 bits that one scale of 6 is for: their products are looked up, not computed."""
    scales = [i - 64 if signed and i >= 32 else i for i in range(64)]
    lines = [[level * scale >> shift & 255 for level in levels] for scale in scales for shift in (0, 8)]
    kind = ir.ArrayType(i8x16.ir, len(lines))

    def body(b: Any, nibbles: Any, scales: Any, lower: Any, upper: Any) -> None:
        table = b.module.globals.get(name)
        if table is None:
            table = ir.GlobalVariable(b.module, kind, name)
            table.initializer = ir.Constant(kind, [ir.Constant(i8x16.ir, line) for line in lines])
            table.linkage, table.global_constant, table.unnamed_addr, table.align = "internal", True, True, 64
        scale = b.zext(b.and_(b.load(pointer(b, scales, ir.IntType(16))), ir.IntType(16)(63)), I64)
        for half, target in ((0, lower), (1, upper)):
            line = b.load(b.gep(table, [I64(0), b.add(b.shl(scale, I64(1)), I64(half))], inbounds=True))
            both = b.shuffle_vector(line, line, ir.Constant(ir.VectorType(I32, 32), [*range(16), *range(16)]))
            found = intrinsic_call(b, "llvm.x86.avx2.pshuf.b", i8x32.ir, [both, nibbles])
            b.store(found, pointer(b, target, i8x32.ir)).align = 1

    return op(types.void, (i8x32, types.intp, types.intp, types.intp), body)
