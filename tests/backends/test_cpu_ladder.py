"""Instruction sets other than the best of this machine: run where it has them, else looked at as assembly."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from plans import error

from llamina.backends.cpu.features import HAS_BF16, HAS_VNNI, LADDER
from skips import skip

FOLDER = Path(__file__).parent
# Not run on every rung: quantized KV caches, whose code is the same on all, and the experts of other formats, whose
# rows and tiles are those of `linear`.
TESTS = [
    "test_cpu_matmul.py::test_linear",
    "test_cpu_matmul.py::test_long_rows_have_the_bits_of_one_token",
    "test_cpu_matmul.py::test_what_is_no_number_stays_none",
    "test_cpu_matmul.py::test_embedding_rows_are_decoded_exactly",
    "test_cpu_matmul.py::test_many_tokens_through_experts_have_the_bits_of_one[Q4_K]",
    "test_cpu_ops.py::test_equals_its_meaning",
    "test_cpu_pointwise.py",
]
MATRIX_TESTS = [
    *(f"test_cpu_matmul.py::test_linear[{kind}]" for kind in ("F16", "BF16")),
    *(
        f"test_cpu_matmul.py::test_long_rows_have_the_bits_of_one_token[{kind}]"
        for kind in ("F16", "BF16", "Q8_0", "Q4_K", "IQ4_XS")
    ),
    "test_cpu_words.py",
]
RUN = """
import sys
import pytest
from llamina.backends.cpu.jit import library
from llamina.backends.cpu.layout import MATRIX_FORMATS

library().prepare([f"linear.{kind}" for kind in sorted(MATRIX_FORMATS)])  # several processes compile them
sys.exit(pytest.main(["-n", "0", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""
EMULATED = """
import sys
import pytest
from llamina.backends.cpu import features

features.HAS_AMX = features.HAS_AMX_BF16 = features.HAS_AMX_FP16 = True
import amx_emulator
from llamina.backends.cpu.jit import linking

amx_emulator.install()
linking.processes_for = lambda names: 1  # others would not have the registers
code = pytest.main(["-n", "0", "-p", "no:cacheprovider", *sys.argv[1:]])
assert code or (amx_emulator.used() and not amx_emulator.mistakes()), "registers were used wrongly, or not at all"
sys.exit(code)
"""
OUTPUTS = """
import sys
import numpy as np
from plans import block_weight, float_weight, run, whole
from llamina.backends.cpu.layout import MATRIX_FORMATS
from llamina.backends.cpu.lowering.matmul import PLAIN
from llamina.ops import embed, linear, pick

values = np.random.default_rng(0).standard_normal((41, 512))
table, outputs = float_weight("e", values[:20]), {}
for kind in sorted(MATRIX_FORMATS):
    w = float_weight("w", values[20:], kind) if kind in PLAIN else block_weight("w", kind, (21, 512))
    for tokens in ([3], [1, 2, 3], [*range(20)], [*range(20)] * 3):
        rows = run("cpu", lambda t, p: pick(linear(embed(t, table), w)), [[whole(tokens)]])
        outputs[f"{kind}, {len(tokens)} tokens"] = rows
np.savez(sys.argv[1], **outputs)
"""
ASSEMBLY = """
import os, sys
cpu, triple, flags, machine_features, kernel = sys.argv[1:]
if "x86" in triple:
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = cpu, machine_features
import llvmlite.binding as llvm
from llamina.backends.cpu import features
for name in [name for name in vars(features) if name.startswith("HAS_")]:
    setattr(features, name, name in flags.split(","))
from llamina.backends.cpu.kernels.gemm import lanes
from llamina.backends.cpu.jit.codegen import kernel_ir

# numba compiles for this machine as it goes: instructions of others are calls of unknown functions to it
call = lanes.intrinsic_call
lanes.intrinsic_call = lambda b, name, *rest: call(b, name.replace("llvm.aarch64", "other.aarch64"), *rest)
llvm.add_symbol("other.aarch64.neon.sdot.v4i32.v16i8", 1)
for initialize in (llvm.initialize_all_targets, llvm.initialize_all_asmprinters, llvm.initialize_native_asmparser):
    initialize()
lines = kernel_ir(kernel)[0].replace("other.aarch64", "llvm.aarch64").splitlines()
lines = [f'target triple = "{triple}"', *(line for line in lines if not line.startswith("target "))]
machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=machine_features, opt=3)
print(machine.emit_assembly(llvm.parse_assembly(chr(10).join(lines))))
"""


def python(code: str, *args: str, **environment: str) -> str:
    """What a script prints."""
    paths = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout


def used(isa: str) -> str:
    """What kernels are written for at a rung of the ladder."""
    return python("from llamina.backends.cpu import features; print(features.used())", LLAMINA_ISA=isa)


@pytest.fixture(scope="module")
def rungs() -> list[str]:
    """The rungs that this machine has."""
    found = {used(isa): isa for isa in reversed(LADDER)}  # the lowest of those that are the same here
    return [isa for isa in LADDER if isa in found.values()]


@pytest.mark.timeout(1800)  # kernels are compiled for each rung
@pytest.mark.parametrize("isa", LADDER)
def test_every_format_and_operation(isa: str, rungs: list[str]) -> None:
    """The tests of matrix products and operations against NumPy, in a process that may use no more than this rung."""
    if isa not in rungs:
        skip("hardware", f"this CPU has no {isa}")
    python(RUN, *(str(FOLDER / test) for test in TESTS), LLAMINA_ISA=isa)


@pytest.mark.timeout(1800)
def test_matrix_registers_in_software(tmp_path: Path) -> None:
    """The same tests of kernels for AMX, whose instructions are emulated: in bytes, bfloat16 and float16."""
    if not (HAS_VNNI and HAS_BF16 and sys.platform.startswith("linux")):
        skip("hardware", "what goes with matrix registers needs Linux, VNNI and bfloat16")
    python(EMULATED, *(str(FOLDER / test) for test in MATRIX_TESTS), LLAMINA_CACHE=str(tmp_path))


def test_every_rung_gives_the_same_bits(rungs: list[str], tmp_path: Path) -> None:
    """All but BF16 and F16, whose activations are rounded where the CPU multiplies pairs of 16-bit numbers."""
    for isa in rungs:
        python(OUTPUTS, str(tmp_path / f"{isa}.npz"), LLAMINA_ISA=isa)
    lowest, *others = (dict(np.load(tmp_path / f"{isa}.npz")) for isa in rungs)
    for isa, outputs in zip(rungs[1:], others, strict=True):
        odd = [name for name in lowest if not np.array_equal(lowest[name], outputs[name])]
        rounds = ("BF16", "F16") if isa in ("avx512", "amx") else ("BF16",)
        assert [name for name in odd if not name.startswith(rounds)] == [], isa
        assert all(error(outputs[name], lowest[name]) < 1e-5 for name in odd), isa


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(AssertionError, match="LLAMINA_ISA is 'mmx': portable, avx2"):
        python("import llamina.backends.cpu.jit", LLAMINA_ISA="mmx")


ICE_LAKE = "+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vnni,+avx512vbmi,+gfni"
SAPPHIRE = f"{ICE_LAKE},+amx-tile,+amx-int8"
GRANITE = f"{SAPPHIRE},+avx512bf16,+amx-bf16,+amx-fp16"
MATRICES = "HAS_AVX2,HAS_AVX512,HAS_VNNI,HAS_VBMI,HAS_BF16,HAS_AMX,HAS_AMX_BF16,HAS_AMX_FP16"


@pytest.mark.parametrize(
    ("target", "kernel", "instructions"),
    [
        (
            ("sapphirerapids", "x86_64-unknown-linux-gnu", "HAS_AVX2,HAS_AVX512,HAS_VNNI,HAS_AMX", SAPPHIRE),
            "linear.Q4_K",
            ("tdpbusd", "tdpbssd", "tdpbuud", "vpdpwssd", "vpdpbusd"),
        ),
        (("graniterapids", "x86_64-unknown-linux-gnu", MATRICES, GRANITE), "linear.BF16", ("tdpbf16ps",)),
        (("graniterapids", "x86_64-unknown-linux-gnu", MATRICES, GRANITE), "linear.F16", ("tdpfp16ps",)),
        (
            ("icelake-server", "x86_64-unknown-linux-gnu", "HAS_AVX2,HAS_AVX512,HAS_VNNI,HAS_VBMI", ICE_LAKE),
            "linear.IQ2_XS",
            ("vpermt2w", "vpmultishiftqb", "vpermb", "vgf2p8affineqb", "vmovhps"),
        ),
        (("neoverse-n1", "aarch64-unknown-linux-gnu", "HAS_SDOT", "+dotprod,+neon"), "linear.Q4_K", ("sdot",)),
    ],
    ids=["amx", "amx-bf16", "amx-fp16", "vbmi", "neon"],
)
def test_kernels_for_other_cpus(target: tuple[str, str, str, str], kernel: str, instructions: tuple[str, ...]) -> None:
    """Compiled, not run: the assembly has the instructions that the kernel was written for."""
    assembly = python(ASSEMBLY, *target, kernel)
    for instruction in instructions:
        assert instruction in assembly
