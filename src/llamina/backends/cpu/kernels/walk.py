"""Walking a plan: every thread of the team calls every step, with a barrier where the next step needs this one.

The context is a block of 64-byte lines: what each line holds is named below.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from llamina.backends.cpu.kernels.device import device, kernel
from llamina.backends.cpu.kernels.memory import i64, pointer

TABLE, STEPS, ARRIVED, PHASE, POSTED, STOP, YIELD, PARKED = (64 * i for i in range(8))
SPINS_BEFORE_YIELD = 4096
SPINS_BEFORE_PARK = 20000
I64 = ir.IntType(64)


@intrinsic
def call(ctx: Any, function: Any, a: Any, thread: Any, threads: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fn_type = ir.FunctionType(I64, [I64] * 3)
        return builder.call(builder.inttoptr(args[0], fn_type.as_pointer()), args[1:])

    return types.intp(types.intp, types.intp, types.intp, types.intp), codegen


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


@device
def barrier(context, threads):
    phase = load_acquire(context + PHASE)
    if fetch_add(context + ARRIVED, 1) == threads - 1:
        exchange(context + ARRIVED, 0)
        fetch_add(context + PHASE, 1)
        return
    spins = 0
    while load_acquire(context + PHASE) == phase:
        spins += 1
        if spins < SPINS_BEFORE_YIELD:
            relax()
        else:
            call(i64(context + YIELD), 0, 0, 0)


@device
def walk_steps(context, thread, threads):
    step = i64(context + TABLE)
    end = step + 24 * i64(context + STEPS)
    while step < end:
        call(i64(step), i64(step + 8), thread, threads)
        if threads > 1 and i64(step + 16) != 0:
            barrier(context, threads)
        step += 24


@kernel
def walk(thread, threads, context):
    """Thread 0's share of a plan that was posted."""
    walk_steps(context, thread, threads)
    return 0


@kernel
def post(thread, threads, context):
    """Start the other threads; the bits of the result are those that are parked and want waking."""
    fetch_add(context + POSTED, 1)
    parked = 0
    for t in range(1, threads):
        if exchange(context + PARKED + 64 * t, 0) == 1:
            parked |= 1 << t
    return parked


@kernel
def serve(thread, threads, context):
    """Walk posted plans until told to stop (-1), or until nothing came for a while (0): then park."""
    done = context + PARKED + 64 * (threads + thread)  # plans this thread has walked
    while True:
        spins = 0
        while load_acquire(context + POSTED) == load_acquire(done):
            relax()
            spins += 1
            if spins > SPINS_BEFORE_PARK:
                exchange(context + PARKED + 64 * thread, 1)
                if load_acquire(context + POSTED) == load_acquire(done):
                    return 0
                if exchange(context + PARKED + 64 * thread, 0) == 0:
                    return 0  # somebody is waking us already
                spins = 0
        fetch_add(done, 1)
        if load_acquire(context + STOP) != 0:
            return -1
        walk_steps(context, thread, threads)


KERNELS = {"walk": walk, "post": post, "serve": serve}
