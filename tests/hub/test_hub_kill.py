"""A pull that is killed at any moment leaves no broken file under a model's name, and the next one goes on."""

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fake_hub import COMMIT, serving
from llamina.hub.fetching import partial_path
from llamina.hub.journal import Journal
from llamina.hub.transfer import journal_path

MODEL = random.Random(0).randbytes(24 << 20)


@pytest.mark.parametrize(("source", "kills"), [("repository", 10), ("address", 4)])
def test_pulls_killed_at_random_moments(source: str, kills: int, tmp_path: Path) -> None:
    with serving({"m-Q4_K_M.gguf": MODEL}, rate=16 << 20) as server:
        environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(tmp_path / "hf")}
        if source == "repository":
            name, repository = "user/repo", tmp_path / "hf" / "models--user--repo"
            final = repository / "snapshots" / COMMIT / "m-Q4_K_M.gguf"
            target = repository / "blobs" / hashlib.sha256(MODEL).hexdigest()
        else:
            name = f"{server.cdn}/user/repo/m-Q4_K_M.gguf"
            final = target = tmp_path / "cache" / "models" / "m-Q4_K_M.gguf"
        command = [sys.executable, "-m", "llamina", "pull", "-q", name]
        moments, resumed = random.Random(source), 0
        for _ in range(kills):
            gaps = Journal(journal_path(partial_path(target))).missing() or [(0, len(MODEL))]
            resumed += gaps != [(0, len(MODEL))]
            server.asked.clear()
            missing = sum(stop - start for start, stop in gaps)
            server.sent, wanted = 0, min(moments.randrange(len(MODEL) // 2), missing)  # all: while it is verified
            with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
                while server.sent < wanted and process.poll() is None:
                    time.sleep(0.001)
                process.kill()
            assert all(any(a <= start < stop <= b for a, b in gaps) for start, stop in server.ranges_asked())
            for path in (final, target):
                assert not path.exists() or path.read_bytes() == MODEL
            if target.exists():
                final.unlink(missing_ok=True)
                target.unlink(missing_ok=True)
        assert resumed
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{final}\n" and final.read_bytes() == MODEL
        assert [path.name for path in target.parent.iterdir() if path.suffix in (".part", ".journal")] == []
