"""`llamina convert`."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from convert.convert_folders import folder
from skips import needs

Invoke = Callable[..., Result]
SLOW = """
import sys, time
from llamina.cli import main
from llamina.convert.lazy import Lazy
encoded = Lazy.encoded
def slowly(*arguments):
    time.sleep(0.2)
    yield from encoded(*arguments)
Lazy.encoded = slowly
sys.argv = ["llamina", "convert", sys.argv[1], "-o", sys.argv[2]]
main()
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return folder(tmp_path / "Tiny-Llama", "llama")


def test_convert(invoke: Invoke, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("convert", "Tiny-Llama")
    assert (result.exit_code, result.stdout) == (0, "Tiny-Llama-F32.gguf\n")
    assert result.stderr.splitlines()[-1].startswith("llama, 98.63K parameters in F32: ")
    told = json.loads(invoke("show", "Tiny-Llama-F32.gguf", "--json").stdout)
    assert told["architecture"] == "llama" and told["runs"] is True and told["chat_template"] is True
    assert invoke("convert", "Tiny-Llama").exit_code == 2
    assert invoke("convert", "Tiny-Llama", "--force", "--quiet").stderr == ""


def test_as_json(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    told = json.loads(invoke("convert", model, "-o", out, "--type", "q8_0", "--json").stdout)
    assert told["path"] == str(out) and told["type"] == "Q8_0" and told["bytes"] == out.stat().st_size
    assert told["notes"] == []
    again = tmp_path / "again.gguf"
    assert invoke("convert", model, again, "--type", "q8_0", "-q").stdout == f"{again}\n"
    assert again.read_bytes() == out.read_bytes()
    twice = invoke("convert", model, again, "-o", out)
    assert twice.exit_code == 2 and "given twice: as an argument and with -o" in twice.stderr


def test_notes_are_said(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"sliding_window": 128}))
    result = invoke("convert", model, "-o", tmp_path / "out.gguf")
    assert "sliding_window 128 is left out: llama in GGUF sees the whole context" in result.stderr
    rope = {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}
    (model / "config.json").write_text(json.dumps(config | rope))
    result = invoke("convert", model, "-o", tmp_path / "out.gguf", "--force")
    assert "rope_type 'dynamic' (factor 2.0) is left out: GGUF has no scaling that grows with" in result.stderr
    assert f"up to the {config['max_position_embeddings']} tokens of the trained context" in result.stderr


@needs("hardware", sys.platform != "win32", "POSIX signals")
def test_an_end_by_force_leaves_nothing(model: Path, tmp_path: Path) -> None:
    """SIGTERM in the midst of writing, which takes long because each tensor waits."""
    slow = tmp_path / "slow.py"
    slow.write_text(SLOW)
    out = tmp_path / "out" / "m.gguf"
    out.parent.mkdir()
    process = subprocess.Popen([sys.executable, str(slow), str(model), str(out)], stderr=subprocess.PIPE, text=True)
    while not list(out.parent.iterdir()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143 and list(out.parent.iterdir()) == []


def test_mistakes(invoke: Invoke, model: Path, tmp_path: Path) -> None:
    missing = invoke("convert", tmp_path / "nothing")
    assert missing.exit_code == 3 and "is not a folder" in missing.stderr
    shutil.copy(model / "config.json", tmp_path)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["LlamoForCausalLM"]}))
    unknown = invoke("convert", model)
    assert (
        unknown.exit_code == 1 and "LlamoForCausalLM, which llamina cannot convert; the nearest are" in unknown.stderr
    )
    result = invoke("convert", model, "--type", "q9")
    assert result.exit_code == 2 and "type is 'q9': must be one of F32, F16" in result.stderr
    result = invoke("convert", model, "--type", "f16", "--imatrix", "i.gguf")
    assert result.exit_code == 2 and "has no use for an importance matrix" in result.stderr


@pytest.mark.parametrize("kind", ["q4_k_m", "iq4_nl", "q5_1", "mxfp4_moe"])
def test_quantized_in_one_go(invoke: Invoke, model: Path, tmp_path: Path, kind: str) -> None:
    """The same bytes as by converting and quantizing, and no file in between."""
    once, plain, twice = (tmp_path / name for name in ("once.gguf", "plain.gguf", "twice.gguf"))
    told = json.loads(invoke("convert", model, "-o", once, "--type", kind, "--json").stdout)
    assert told["type"] == kind.upper() and told["bytes"] == once.stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Tiny-Llama", "once.gguf"]
    assert invoke("convert", model, "-o", plain).exit_code == 0
    assert invoke("quantize", plain, twice, kind).exit_code == 0
    assert once.read_bytes() == twice.read_bytes()


def test_one_file(invoke: Invoke, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named after the file; config.json and the tokenizer are those beside it."""
    monkeypatch.chdir(tmp_path)
    assert invoke("convert", model).stdout == "Tiny-Llama-F32.gguf\n"
    (weights,) = model.glob("*.safetensors")
    weights.rename(model / "tuned-v1.5.safetensors")
    result = invoke("convert", model / "tuned-v1.5.safetensors")
    assert (result.exit_code, result.stdout) == (0, "tuned-v1.5-F32.gguf\n"), result.stderr
    assert (tmp_path / "tuned-v1.5-F32.gguf").read_bytes() == (tmp_path / "Tiny-Llama-F32.gguf").read_bytes()
    shard = (model / "tuned-v1.5.safetensors").rename(model / "model-00001-of-00002.safetensors")
    result = invoke("convert", shard)
    assert result.exit_code == 1 and "is one of 2 files of a model: give its folder" in result.stderr
    shard.rename(tmp_path / "alone.safetensors")
    result = invoke("convert", tmp_path / "alone.safetensors")
    assert result.exit_code == 3 and "has no config.json" in result.stderr
