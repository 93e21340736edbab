"""Kernels compiled by several processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from llamina.backends.cpu import jit
from llamina.backends.cpu.compiling import share_out

NAMES = ["add", "mul", "scale", "copy", "pick", "rope", "rope_table", "softcap"]


def test_everything_is_dealt_once() -> None:
    names = ["attend.f16", "linear.Q4_K", "linear.Q6_K", "experts.Q4_K", *NAMES]
    for processes in (1, 2, 3, 50):
        shares = share_out(names, processes)
        assert sorted(name for share in shares for name in share) == sorted(names)
        assert len(shares) == min(processes, len(names))


@pytest.mark.parametrize("helpful", [True, False])
def test_helpers_fill_the_cache(helpful: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that fails is stood in for."""
    shares: list[list[str]] = []

    def start(names: list[str]) -> "subprocess.Popen[bytes]":
        shares.append(names)
        script = "from llamina.backends.cpu.compiling import start; import sys; sys.exit(start(sys.argv[1:]).wait())"
        return subprocess.Popen([sys.executable, "-c", script if helpful else "exit(1)", *names])

    monkeypatch.setenv("LLAMINA_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "processes_for", lambda names: 2)
    monkeypatch.setattr(jit, "start", start)
    told: list[tuple[str, int, int]] = []
    library = jit.Library(tmp_path / "kernels")
    library.prepare(NAMES, lambda *news: told.append(news))
    assert len(shares) == 1 and len(shares[0]) == len(NAMES) // 2
    assert all(library[name].params for name in NAMES)
    assert [done for _, done, _ in told] == list(range(len(NAMES) + 1))
    assert len(list(tmp_path.rglob("*.kernel"))) == len(NAMES)
