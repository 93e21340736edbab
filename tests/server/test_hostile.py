"""One round of `benchmarks/hostile.py` against a real server; the long form is run by hand."""

import asyncio
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile.py"


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: counts file descriptors and sends a POSIX signal")
def test_hostile_clients(golden: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    """500 connections: the server keeps serving, gives back what they took, and ends with its worker at SIGTERM."""
    spec = importlib.util.spec_from_file_location("hostile", SCRIPT)
    assert spec is not None and spec.loader is not None
    hostile = importlib.util.module_from_spec(spec)
    sys.modules["hostile"] = hostile
    spec.loader.exec_module(hostile)
    told = asyncio.run(hostile.run(str(golden("stories260K.gguf")), rounds=1, connections=500, readers=10, warm=False))
    assert "good requests" in told
    logged = capfd.readouterr().err
    assert "Once" not in logged and "Traceback" not in logged
