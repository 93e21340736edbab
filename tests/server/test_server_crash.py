"""A server that is killed loses nothing that it has acknowledged, and does nothing twice."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crashes import Scene


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends a POSIX signal")
def test_a_server_that_is_killed(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """At a few random moments; benchmarks/crash.py does it at length."""
    scene = Scene(golden("stories260K.gguf"), tmp_path, lines=120, seed=14)
    scene.kill_once()
    scene.kill_once()
    assert scene.kills[0] in ("validating", "in_progress") and scene.files and scene.responses
    scene.finish()
