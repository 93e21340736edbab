"""`llamina doctor`, and which backend is taken by itself."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from llamina.backends import backend
from llamina.backends.cuda import found
from llamina.cli.doctor import command
from llamina.errors import RequestError


def doctor(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    return result.exit_code or int(result.return_value or 0), result.output


def test_the_machine_is_described() -> None:
    code, text = doctor()
    assert code == 0
    assert all(name in text for name in ("llamina", "numpy", "CPU", "GB/s", "GPU", "cache"))
    code, text = doctor("--json")
    names = [finding["name"] for finding in json.loads(text)]
    assert {"CPU", "instructions", "memory", "GPU", "cache", "data"} <= {*names}


def test_what_stands_in_the_way_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("LLAMINA_DATA", str(blocked / "inside"))
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != blocked)
    code, text = doctor()
    assert code == 1 and "set LLAMINA_DATA to another folder" in text


def test_advice_for_a_gpu_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = found.Found(["H200"], "Triton is not installed: pip install 'llamina[cuda]'")
    monkeypatch.setattr("llamina.backends.survey.find_gpus", lambda: missing)
    assert "llamina[cuda]" in doctor()[1]


def test_auto_takes_the_gpu_unless_the_cpu_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMINA_BACKEND", raising=False)
    monkeypatch.setattr(found, "find_gpus", lambda: found.Found(["H200"]))
    opened = []
    monkeypatch.setattr("llamina.backends.cuda.backend.open_gpu", lambda index, stream: opened.append(index))
    assert backend("auto").name == "cuda" and opened == [0]
    assert backend("auto", device=1).name == "cuda" and opened == [0, 1]
    assert backend("auto", threads=1).name == "cuda"  # they are those of the CPU, whatever computes
    assert backend("auto", memory_budget=1 << 30, offload="budget").name == "cpu"
    monkeypatch.setenv("LLAMINA_BACKEND", "reference")
    assert backend("auto").name == "reference"
    monkeypatch.delenv("LLAMINA_BACKEND")
    monkeypatch.setattr(found, "find_gpus", lambda: found.Found(missing="no driver"))
    assert backend("auto").name == "cpu"
    with pytest.raises(RequestError, match="has no option 'device'"):
        backend("cpu", device=0)
