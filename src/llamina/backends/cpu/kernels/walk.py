"""Threads that walk the calls of a program.

Chains of calls that do not touch each other's memory form a group; threads claim parts of chains.

A group is done when all its parts are, not when all threads have arrived: on a crowded machine a thread that gets no
time claims nothing, and no thread waits for it. Claims carry the number of the run, so a thread that comes late cannot
take part in a run it does not know.

What to walk stands in the context twice, for even and odd runs: it is written before a run is posted and stays until
the next but one, so a thread that reads it and then still finds the run current has read it whole.

The context is a block of 64-byte lines, named below; then a line for each thread (is it parked? which run did it see?),
then one for each group: (run << 32 | parts claimed), (run << 32 | parts done).
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.vector.memory import i64, pointer, set_i64

PLANS, RUN, STOP, YIELD, LINES, PARKED = (64 * i for i in range(6))  # a plan: address of its groups, their number
SPINS_BEFORE_YIELD = 2000
SPINS_BEFORE_PARK = 20000
I64 = ir.IntType(64)


@intrinsic
def call(ctx: Any, function: Any, a: Any, part: Any, parts: Any, worker: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn_type = ir.FunctionType(I64, [I64] * 4)
        return builder.call(builder.inttoptr(args[0], fn_type.as_pointer()), args[1:])

    return types.intp(types.intp, types.intp, types.intp, types.intp, types.intp), codegen


def _atomic(operation: str) -> Any:
    @intrinsic
    def run(ctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.atomic_rmw(operation, pointer(builder, args[0], I64), args[1], "seq_cst")

        return types.intp(types.intp, types.intp), codegen

    return run


fetch_add, exchange = _atomic("add"), _atomic("xchg")


@intrinsic
def load_acquire(ctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(pointer(builder, args[0], I64), "seq_cst", 8)

    return types.intp(types.intp), codegen


@intrinsic
def relax(ctx: Any) -> Any:
    """Tell the core that this is a spin loop."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if "x86" in builder.module.triple:
            fn_type = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, fn_type, "llvm.x86.sse2.pause"), [])
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def replace_if(ctx: Any, address: Any, expected: Any, value: Any) -> Any:
    """Compare and exchange: 1 if the word was `expected` and is now `value`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pair = builder.cmpxchg(pointer(builder, args[0], I64), args[1], args[2], "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(pair, 1), I64)

    return types.intp(types.intp, types.intp, types.intp), codegen


@device
def claim(line, run, total):
    """The number of a part that is now ours, or -1 when none is left (or the run is over)."""
    while True:
        seen = load_acquire(line)
        if seen >> 32 != run or seen & 0xFFFFFFFF >= total:
            return -1
        if replace_if(line, seen, seen + 1):
            return seen & 0xFFFFFFFF


@device
def finish(context, line, run, total):
    """Wait until every part of the group is done."""
    spins = 0
    while True:
        seen = load_acquire(line + 8)
        if seen >> 32 != run or seen & 0xFFFFFFFF >= total:
            return
        spins += 1
        if spins < SPINS_BEFORE_YIELD:
            relax()
        else:
            call(i64(context + YIELD), 0, 0, 0, 0)


@device
def walk_groups(context, run, thread, threads):
    """Groups are rows of (first chain, chains), chains of (first call, calls), calls of (function, arguments)."""
    plan = context + PLANS + 16 * (run & 1)
    group, line = load_acquire(plan), i64(context + LINES)
    end = group + 16 * load_acquire(plan + 8)
    if load_acquire(context + RUN) != run:
        return
    while group < end:
        chain, total = i64(group), i64(group + 8) * threads
        while True:
            part = claim(line, run, total)
            if part < 0:
                break
            row = i64(chain + 16 * (part // threads))
            for _ in range(i64(chain + 16 * (part // threads) + 8)):
                call(i64(row), i64(row + 8), part % threads, threads, thread)
                row += 16
            fetch_add(line + 8, 1)
        finish(context, line, run, total)
        group += 16
        line += 64


@kernel(writes=())
def walk(thread, threads, context):
    """The caller's share of the run that was posted."""
    walk_groups(context, load_acquire(context + RUN), thread, threads)
    return 0


@kernel(writes=("context",))
def post(thread, threads, context):
    """Start a run; the bits of the result are the threads that are parked and want waking."""
    run = load_acquire(context + RUN) + 1
    line = i64(context + LINES)
    for _ in range(i64(context + PLANS + 16 * (run & 1) + 8)):
        set_i64(line + 8, run << 32)
        set_i64(line, run << 32)
        line += 64
    exchange(context + RUN, run)
    parked = 0
    for t in range(1, threads):
        if exchange(context + PARKED + 64 * t, 0) == 1:
            parked |= 1 << t
    return parked


@kernel(writes=("context",))
def serve(thread, threads, context):
    """Take part in runs until told to stop (-1), or until nothing came for a while (0): then park."""
    mine = context + PARKED + 64 * thread
    while True:
        spins = 0
        while load_acquire(context + RUN) == i64(mine + 8):
            relax()
            spins += 1
            if spins > SPINS_BEFORE_PARK:
                exchange(mine, 1)
                if load_acquire(context + RUN) == i64(mine + 8):
                    return 0
                if exchange(mine, 0) == 0:
                    return 0  # somebody is waking us already
                spins = 0
        exchange(mine + 8, load_acquire(context + RUN))
        if load_acquire(context + STOP) != 0:
            return -1
        walk_groups(context, i64(mine + 8), thread, threads)


KERNELS = {"walk": walk, "post": post, "serve": serve}
