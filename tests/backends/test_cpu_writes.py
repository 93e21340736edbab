"""What kernels write is declared, and the declarations are true: by their machine code, and by running them."""

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plans import float_weight, whole
from test_cpu_ops import PLANS, TOKENS

from llamina.backends import Capacity, backend
from llamina.backends.cpu import program as program_module
from llamina.backends.cpu.jit import library
from llamina.backends.cpu.jit.codegen import kernel_ir
from llamina.backends.cpu.jit.stores import stored_params
from llamina.backends.cpu.kernels import find
from llamina.backends.cpu.runtime.arena import Buffer, Ref
from llamina.backends.cpu.runtime.call import KernelCall, LinkedCall
from llamina.backends.cpu.runtime.dependencies import chain, group, rows_of
from llamina.errors import KernelError
from llamina.ops import Value, embed, linear, pick
from llamina.ops.batch import Batch
from llamina.plan import record

CODE = """
define i32 @inner(ptr %retptr, ptr %excinfo, i64 %arg.p, i64 %arg.q) {
  %1 = add i64 %arg.p, 4
  %2 = inttoptr i64 %1 to ptr
  store float 0.0, ptr %2, align 1
  ret i32 0
}
define i32 @entry(ptr %retptr, ptr %excinfo, i64 %arg.a, i64 %arg.part, i64 %arg.parts, i64 %arg.worker) {
B0:
  %1 = inttoptr i64 %arg.a to ptr
  %read = load i64, ptr %1, align 1
  %2 = getelementptr i8, ptr %1, i64 8
  %written = load i64, ptr %2, align 1
  %3 = add i64 %arg.a, 16
  %4 = inttoptr i64 %3 to ptr
  %passed = load i64, ptr %4, align 1
  %5 = add i64 %arg.a, 24
  %6 = inttoptr i64 %5 to ptr
  %cell = load i64, ptr %6, align 1
  %apart = sub i64 %written, %read
  br label %loop
loop:
  %at = phi i64 [ %read, %B0 ], [ %next, %loop ]
  %next = add i64 %at, 4
  %7 = inttoptr i64 %at to ptr
  %value = load float, ptr %7, align 1
  %8 = add i64 %at, %apart
  %9 = inttoptr i64 %8 to ptr
  store float %value, ptr %9, align 1
  %10 = call i32 @inner(ptr %retptr, ptr %excinfo, i64 %passed, i64 %read)
  %kept = alloca i64, align 8
  store i64 %cell, ptr %kept, align 8
  br label %loop
}
"""


def test_stores_are_followed_to_parameters() -> None:
    """Through loops, differences of addresses and calls; what is put into memory is lost, and said to be."""
    assert stored_params(CODE, "entry", ["read", "written", "passed", "cell"]) == (["written", "passed"], ["cell"])


def linked(writes: tuple[str, ...]) -> LinkedCall:
    """A call of a kernel as if it were declared otherwise."""
    kernel = library()["rope"]
    args: dict[str, Any] = dict.fromkeys(kernel.params, 0)
    args |= {name: Ref(Buffer(64)) for name in ("x", "table", "out")}
    return LinkedCall(KernelCall("rope", args, 0), replace(kernel, writes=frozenset(writes)))


def test_a_write_that_is_not_declared_is_noticed() -> None:
    assert len(linked(("out",)).writes) == 1 and len(linked(("out",)).reads) == 2
    with pytest.raises(KernelError, match=r"rope stores through \['out'\] and is not declared to write it"):
        linked(())
    with pytest.raises(KernelError, match=r"rope stores through \['out'\]"):
        linked(("x",))


def test_a_declared_write_that_is_none_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find("rope"), "writes", ("out", "table"))
    with pytest.raises(KernelError, match=r"rope is declared to write \['table'\] and does not store through it"):
        kernel_ir("rope")


def test_wrong_arguments_are_noticed() -> None:
    with pytest.raises(KernelError, match=r"rope is called with other arguments than it has: .*'size'"):
        LinkedCall(KernelCall("rope", {"size": 1}, 0), library()["rope"])


def _matrices(tokens: Value, positions: Value) -> Value:
    x = embed(tokens, float_weight("token_embd.weight", np.random.default_rng(0).standard_normal((32, 64))))
    return pick(linear(x, float_weight("w", np.random.default_rng(1).standard_normal((24, 64)), "Q8_0")))


ATTENTION = [name for name in PLANS if "attention" in name]


@pytest.mark.parametrize(
    ("name", "kv_type"),
    [("matrices", "f32"), *((name, "f32") for name in PLANS), *((name, "q4_0") for name in ATTENTION)],
)
def test_calls_change_nothing_else(name: str, kv_type: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call run alone: the memory that it is said to read is the same afterwards."""
    calls: list[LinkedCall] = []

    def spy(chains: list[list[LinkedCall]]) -> list[int]:
        calls.extend(call for several in chains for call in several)
        return group(chains)

    monkeypatch.setattr(program_module, "group", spy)
    batch = Batch(64, 64, 8, 16)
    plan = record(_matrices if name == "matrices" else PLANS[name])
    program: Any = backend("cpu", threads=1).compile(plan, batch, Capacity(64, 8, kv_type))
    batch.fill([whole(TOKENS)])
    alone = [1] * len(calls)
    singly = rows_of(rows_of(program._calls, alone), alone)
    for index, call in enumerate(calls):
        before = [memory(buffer) for buffer in call.reads]
        program._team.run(singly[index : index + 1])
        assert [memory(buffer) for buffer in call.reads] == before, call.call.kernel
    program.close()


def memory(buffer: Buffer) -> bytes:
    return ctypes.string_at(buffer.address, buffer.nbytes)


def test_calls_that_touch_the_same_memory_are_in_different_groups() -> None:
    """A kernel that reads what the one before it writes waits for it, unless it goes row by row."""
    first, second = linked(("out",)), linked(("out",))
    for a, b in (("out", "x"), ("x", "out"), ("out", "out")):
        second.call.args[a] = first.call.args[b]
        after = LinkedCall(second.call, second.kernel)
        first.call.args[b].buffer.address = 4096  # type: ignore[union-attr]
        assert group(chain([first, after])) == [1, 1]
    apart = linked(("out",))
    for i, name in enumerate(("x", "table", "out")):
        apart.call.args[name].buffer.address = 1 << (20 + i)  # type: ignore[union-attr]
    assert group(chain([first, apart])) == [2]
