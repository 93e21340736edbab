"""`llamina quantize`."""

import json
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import Result

from kills import kill_once
from llamina.backends.encode import Encoder, Job
from llamina.gguf import GGUF, tensor_type, write
from llamina.quant import decode
from llamina.quantization import FILE_TYPES, Imatrix

Invoke = Callable[..., Result]
SHAPES = {
    "token_embd.weight": (40, 256),
    "output.weight": (40, 256),
    "output_norm.weight": (256,),
    "blk.0.attn_v.weight": (64, 256),
    "blk.0.attn_output.weight": (256, 256),
    "blk.0.ffn_down_exps.weight": (3, 16, 512),
    "blk.0.ffn_up.weight": (64, 96),
}
METADATA = {
    "general.architecture": "llama",
    "general.name": "tiny",
    "llama.block_count": 8,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 4,
    "general.file_type": 1,
}
SLOW = """
import sys, time
from llamina.cli import main
from llamina.backends.encode import Encoder
parts = Encoder.parts
def slowly(*arguments):
    time.sleep(0.3)
    yield from parts(*arguments)
Encoder.parts = slowly
sys.argv = ["llamina", "quantize", sys.argv[1], sys.argv[2], "Q8_0"]
main()
"""


def values_of(name: str) -> np.ndarray:
    return np.random.default_rng(len(name)).standard_normal(SHAPES[name]).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantize") / "tiny-F16.gguf"
    half, full = tensor_type("F16"), tensor_type("F32")
    tensors = [
        (name, shape, half, values_of(name).astype("<f2")) if len(shape) > 1 else (name, shape, full, values_of(name))
        for name, shape in SHAPES.items()
    ]
    write(path, METADATA, tensors)
    return path


def imatrix_of(path: Path, leave: str = "") -> Path:
    rng = np.random.default_rng(0)
    names = [name for name, shape in SHAPES.items() if name.startswith("blk") and name != leave]
    sums = {
        name: rng.random((SHAPES[name][0] if "exps" in name else 1, SHAPES[name][-1]), np.float32) for name in names
    }
    counts = {name: np.full(len(sums[name]), 2, np.float32) for name in names}
    Imatrix(sums, counts, ["wiki.txt"], 3, 512).save(path)
    return path


def types_of(path: Path) -> dict[str, str]:
    with GGUF.open(path) as file:
        return {tensor.name: tensor.type.name for tensor in file.tensors.values()}


def test_quantize(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = invoke("quantize", model, out, "q4_k_m")
    assert (result.exit_code, result.stdout) == (0, f"{out}\n"), result.stderr
    assert "Q4_K_M: " in result.stderr and "bits per weight" in result.stderr
    assert types_of(out) == {
        "output.weight": "Q6_K",
        "output_norm.weight": "F32",
        "token_embd.weight": "Q4_K",
        "blk.0.attn_output.weight": "Q4_K",
        "blk.0.attn_v.weight": "Q6_K",
        "blk.0.ffn_down_exps.weight": "Q6_K",
        "blk.0.ffn_up.weight": "Q5_0",
    }
    with GGUF.open(out) as file:
        known = file.metadata
        assert (known["general.file_type"], known["general.quantization_version"]) == (15, 2)
        assert known["general.name"] == "tiny" and "quantize.imatrix.file" not in known
        for tensor in file.tensors.values():
            found = decode(tensor.data, tensor.type, tensor.shape)
            assert np.abs(found - values_of(tensor.name)).max() < 0.4, tensor.name
            if tensor.type.name == "F32":
                assert (found == values_of(tensor.name)).all()


def test_every_file_type(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    imatrix = imatrix_of(tmp_path / "i.gguf")
    for mix in FILE_TYPES:
        leave = ["--tensor-type", "ffn_up=q8_0"] if mix in ("Q1_0", "NVFP4") else []  # rows of 96
        told = json.loads(
            invoke("quantize", model, "out", mix, "--dry-run", "--json", "--imatrix", imatrix, *leave).stdout
        )
        assert told["type"] == mix and told["tensors"]["output_norm.weight"]["to"] == "F32"


def test_importances(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    """Each expert has its own; a file tells where they come from."""
    imatrix, out = imatrix_of(tmp_path / "i.gguf"), tmp_path / "out.gguf"
    assert invoke("quantize", model, out, "Q4_K", "--imatrix", imatrix, "--pure").exit_code == 0
    read = Imatrix.read(imatrix)
    with GGUF.open(out) as file, Encoder(1) as encoder:
        known = file.metadata
        assert known["quantize.imatrix.file"] == str(imatrix) and known["quantize.imatrix.dataset"] == "wiki.txt"
        assert (known["quantize.imatrix.entries_count"], known["quantize.imatrix.chunks_count"]) == (4, 3)
        name = "blk.0.ffn_down_exps.weight"
        importances = read.importances(name)
        assert importances is not None
        values = values_of(name).astype(np.float16).astype(np.float32)
        kind, plain = tensor_type("Q4_K"), tensor_type("F32")
        for expert in range(3):
            data = values[expert].view(np.uint8)
            expected = encoder.encode(Job(data, plain, kind, importances[expert]))
            found = file.tensors[name].data.reshape(3, 16, -1)[expert]
            assert (found == expected).all()


def test_few_bits(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    imatrix, out = imatrix_of(tmp_path / "i.gguf"), tmp_path / "out.gguf"
    result = invoke("quantize", model, out, "IQ2_XS", "--imatrix", imatrix)
    assert result.exit_code == 0, result.stderr
    found = types_of(out)
    assert (found["blk.0.attn_output.weight"], found["blk.0.ffn_up.weight"]) == ("IQ2_XS", "IQ4_NL")
    assert (found["output.weight"], found["token_embd.weight"]) == ("Q5_K", "Q2_K")


def test_types_that_need_importances(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = invoke("quantize", model, out, "Q2_K_S")
    assert result.exit_code == 2 and "needs an importance matrix, which was not given: give one, or" in result.stderr
    imatrix = imatrix_of(tmp_path / "i.gguf", leave="blk.0.attn_output.weight")
    result = invoke("quantize", model, out, "Q2_K_S", "--imatrix", imatrix)
    assert result.exit_code == 2 and "blk.0.attn_output.weight in Q2_K needs" in result.stderr
    result = invoke("quantize", model, out, "Q2_K_S", "--dry-run")
    assert result.exit_code == 0 and "tensors need an importance matrix (blk.0." in result.stderr
    assert not out.exists()
    result = invoke("quantize", model, out, "Q4_K_S", "--imatrix", imatrix)
    assert "the importance matrix has nothing of 1 tensors (blk.0.attn_output.weight)" in result.stderr


def test_dry_run(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    result = invoke("quantize", model, out, "Q4_K_M", "--dry-run")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["tensor", "shape", "from", "to", "size"]
    assert ["blk.0.attn_v.weight", "64x256", "F16", "Q6_K", "13.4", "kB"] in [line.split() for line in lines]
    assert not out.exists()
    told = json.loads(invoke("quantize", model, out, "Q4_K_M", "--dry-run", "--json").stdout)
    made = json.loads(invoke("quantize", model, out, "Q4_K_M", "--json").stdout)
    assert told == made and made["after"] < made["before"]
    assert sum(tensor["bytes"] for tensor in made["tensors"].values()) == made["after"]


def test_options(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    wanted = ["--output-tensor-type", "q8_0", "--token-embedding-type", "bf16", "--tensor-type", "attn_v=q3_k"]
    assert invoke("quantize", model, out, "Q4_K_S", *wanted).exit_code == 0
    found = types_of(out)
    assert (found["output.weight"], found["token_embd.weight"]) == ("Q8_0", "BF16")
    assert found["blk.0.attn_v.weight"] == "Q3_K"
    assert invoke("quantize", model, out, "Q8_0", "--leave-output-tensor", "--force", "--quiet").stderr == ""
    assert types_of(out)["output.weight"] == "F16"


def test_types_that_rows_do_not_fit(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    """Whoever names a type gets what mixes have in its place; where there is nothing, a refusal."""
    out = tmp_path / "out.gguf"
    narrow = np.zeros((40, 96), "<f4")
    tensors = [(name, (40, 96), tensor_type("F32"), narrow) for name in ("token_embd.weight", "output.weight")]
    write(tmp_path / "narrow.gguf", METADATA, tensors)
    wanted = ["--output-tensor-type", "q6_k", "--token-embedding-type", "q4_k"]
    result = invoke("quantize", tmp_path / "narrow.gguf", out, "Q8_0", *wanted)
    assert result.exit_code == 0, result.stderr
    assert types_of(out) == {"output.weight": "Q8_0", "token_embd.weight": "Q5_0"}
    assert "1 tensors are Q5_0: their rows do not divide into blocks of Q4_K (token_embd.weight)" in result.stderr
    dry = invoke("quantize", tmp_path / "narrow.gguf", out, "Q8_0", *wanted, "--dry-run")
    assert "1 tensors are Q8_0: their rows do not divide into blocks of Q6_K (output.weight)" in dry.stderr
    wanted = ["--tensor-type", "ffn_up=q6_k", "--dry-run", "--json"]
    told = json.loads(invoke("auto-quantize", model, "none", "--target", "9", *wanted).stdout)
    assert told["tensors"]["blk.0.ffn_up.weight"]["to"] == "Q8_0"
    for command in (("quantize", model, "none", "Q4_0"), ("auto-quantize", model, "none", "--target", "9")):
        result = invoke(*command, "--tensor-type", "ffn_up=q1_0")
        assert result.exit_code == 1 and "blk.0.ffn_up.weight has rows of 96, which Q1_0 cannot hold" in result.stderr


def test_names_of_types(invoke: Invoke, model: Path) -> None:
    for name, mix in {"q4_k": "Q4_K_M", "Q1_0_g128": "Q1_0"}.items():
        wanted = [name, "--dry-run", "--json", "--tensor-type", "ffn_up=q8_0"]
        assert json.loads(invoke("quantize", model, "none", *wanted).stdout)["type"] == mix


def test_refusals(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert invoke("quantize", model, out, "Q8_0").exit_code == 0
    for arguments, message in {
        (model, out, "Q8_0"): "exists: choose another name",
        (out, tmp_path / "again.gguf", "Q4_0"): "is Q8_0 already, and quantizing again loses more",
        (out, tmp_path / "again.gguf", "Q4_0", "--dry-run"): "is Q8_0 already, and quantizing again loses more",
        (model, model, "Q8_0", "--force"): "would be replaced by itself",
        (model, out, "Q9"): "type is 'Q9': must be one of",
        (model, out, "Q8_0", "--tensor-type", "ffn"): "'ffn' is not PATTERN=TYPE",
    }.items():
        result = invoke("quantize", *arguments)
        assert result.exit_code == 2 and message in result.stderr, message
    assert invoke("quantize", tmp_path / "none.gguf", out, "Q8_0", "--force").exit_code == 3
    assert invoke("quantize", out, tmp_path / "again.gguf", "Q4_0", "--allow-requantize").exit_code == 0


def test_a_full_disk_is_noticed_before(
    invoke: Invoke, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10_000))
    result = invoke("quantize", model, tmp_path / "out.gguf", "Q8_0")
    assert result.exit_code == 1 and "out.gguf takes 0.000" in result.stderr and "make room, or" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_model_with_no_numbers(invoke: Invoke, tmp_path: Path) -> None:
    values = np.ones((4, 256), "<f4")
    values[2, 5] = np.nan
    write(tmp_path / "nan.gguf", METADATA, [("blk.0.attn_q.weight", (4, 256), tensor_type("F32"), values)])
    result = invoke("quantize", tmp_path / "nan.gguf", tmp_path / "out.gguf", "Q4_K_M")
    assert result.exit_code == 2 and "blk.0.attn_q.weight: it holds NaN" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["nan.gguf"]


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: POSIX signals")
def test_ended_half_way(model: Path, tmp_path: Path) -> None:
    """SIGTERM leaves nothing."""
    command = [sys.executable, "-c", SLOW, str(model), str(tmp_path / "out.gguf")]
    assert kill_once(command, tmp_path, 0.5, signal.SIGTERM) and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: POSIX signals")
def test_killed_at_random_moments(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    """Nothing is under the final name until it is whole, and the next run leaves nothing else."""
    out, rng = tmp_path / "out.gguf", random.Random(5)
    command = [sys.executable, "-c", SLOW, str(model), str(out)]
    for _ in range(3):
        assert kill_once(command, tmp_path, rng.uniform(0, 1.2), signal.SIGKILL)
        assert not out.exists() and len(list(tmp_path.glob(".out.gguf.*.part"))) == 1
    assert invoke("quantize", model, out, "Q8_0", "-q").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]
    assert all(decode(t.data, t.type, t.shape).shape == t.shape for t in GGUF.open(out).tensors.values())
