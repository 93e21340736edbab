"""Instruction sets other than this machine's: the same bits where they run here, else the instructions they have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
EQUAL = """
import sys
import numpy as np
from plans import block_weight, float_weight, run, whole
from llamina.backends.cpu import features
from llamina.ops import embed, linear, pick

table = float_weight("e", np.random.default_rng(0).standard_normal((20, 512)))
outputs = [np.array([features.HAS_AVX2])]
for kind in ("Q4_1", "Q8_0", "MXFP4", "Q4_K", "Q6_K", "IQ4_XS", "IQ2_XS"):
    w = block_weight("w", kind, (21, 512))
    for tokens in ([3], [1, 2, 3], list(range(20))):
        outputs.append(run("cpu", lambda t, p: pick(linear(embed(t, table), w)), [[whole(tokens)]]))
np.savez(sys.argv[1], *outputs)
"""
ASSEMBLY = """
import os, sys
cpu, triple, flags, machine_features, kernel = sys.argv[1:]
if "x86" in triple:
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = cpu, machine_features
import llvmlite.binding as llvm
from llamina.backends.cpu import features
for name in ("HAS_AVX2", "HAS_AVX512", "HAS_VNNI", "HAS_AMX", "HAS_SDOT"):
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
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_portable_vectors_give_the_same_bits(tmp_path: Path) -> None:
    import numpy as np

    for isa in ("portable", "amx"):
        python(EQUAL, str(tmp_path / f"{isa}.npz"), LLAMINA_ISA=isa)
    portable, native = (np.load(tmp_path / f"{isa}.npz") for isa in ("portable", "amx"))
    assert not portable["arr_0"].any()
    for name in portable.files[1:]:
        assert np.array_equal(portable[name], native[name])


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(AssertionError, match="LLAMINA_ISA is 'mmx': portable, avx2"):
        python("import llamina.backends.cpu.jit", LLAMINA_ISA="mmx")


SAPPHIRE = "+avx,+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vnni,+avx512vbmi,+amx-tile,+amx-int8"


@pytest.mark.parametrize(
    ("target", "kernel", "instructions"),
    [
        (
            ("sapphirerapids", "x86_64-unknown-linux-gnu", "HAS_AVX2,HAS_AVX512,HAS_VNNI,HAS_AMX", SAPPHIRE),
            "linear.Q4_K",
            ("tdpbusd", "tdpbssd", "tdpbuud", "vpdpwssd", "vpdpbusd"),
        ),
        (("neoverse-n1", "aarch64-unknown-linux-gnu", "HAS_SDOT", "+dotprod,+neon"), "linear.Q4_K", ("sdot",)),
    ],
    ids=["amx", "neon"],
)
def test_kernels_for_other_cpus(target: tuple[str, str, str, str], kernel: str, instructions: tuple[str, ...]) -> None:
    """Compiled, not run: the assembly has the instructions that the kernel was written for."""
    assembly = python(ASSEMBLY, *target, kernel)
    for instruction in instructions:
        assert instruction in assembly
