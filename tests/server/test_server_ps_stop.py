"""`llamina ps` and `llamina stop` with servers that run."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from live_server import Live, Scripted, serving, wait_for

from llamina.cli import cli
from llamina.server.config import Config


def llamina(*args: str, **environ: str) -> Result:
    return CliRunner().invoke(cli, list(args), env=environ)


def test_loaded_models_are_listed(live: Live) -> None:
    rows = {row["name"]: row for row in json.loads(llamina("ps", "--json", "--url", live.url).stdout)}
    row = rows["smollm2"]
    assert row["status"] == "ready" and row["context"] == 2048 and row["size"] > 90_000_000 and row["memory"] > 0
    assert row["requests"] == 0 and row["unloaded"] is None and row["device"] == "CPU"
    lines = llamina("ps", LLAMINA_URL=f"{live.url}/v1/").stdout.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "MEMORY", "DEVICE", "CONTEXT", "REQUESTS", "UNLOADED"]
    assert any(line.split()[0] == "stories" and line.endswith("never") for line in lines)


def test_a_model_is_unloaded(live: Live) -> None:
    live.adopt("passing", lambda: Scripted([]))
    entry = live.models.entries["passing"]
    entry.users = 1
    entry.profile = entry.profile.__class__(model="scripted.gguf", keep_alive=300, aliases=["by"])
    line = next(line for line in llamina("ps", "--url", live.url).stdout.splitlines() if line.startswith("passing"))
    assert line.endswith("in use") and line.split()[-3] == "1"
    assert "passing is unloaded as soon as its 1 requests are done" in llamina("stop", "by", "--url", live.url).stderr
    assert entry.model is not None
    entry.users, entry.leaving = 0, False
    assert "in 5 min" in llamina("ps", "--url", live.url).stdout
    assert llamina("stop", "by", "--url", live.url).stderr == "passing is unloaded\n"
    assert entry.model is None
    assert llamina("stop", "passing", "--url", live.url).stderr.startswith("passing is not loaded: loaded are ")


def test_what_goes_wrong_is_told(live: Live) -> None:
    for args in (["ps"], ["stop"], ["stop", "x"]):
        result = llamina(*args, "--url", "127.0.0.1:9")
        assert result.exit_code == 1 and "no server answers at http://127.0.0.1:9 " in result.stderr
        assert "start one with `llamina serve`" in result.stderr and len(result.stderr.splitlines()) == 1
    unknown = llamina("stop", "nobody", "--url", live.url)
    assert unknown.exit_code == 1 and "404: there is no model 'nobody'" in unknown.stderr
    assert llamina("ps", "--url", "ftp://x").exit_code == 2
    assert "is no process that this user can see" in llamina("stop", "--url", live.url).stderr  # but a thread of ours


def test_a_key_is_sent(tmp_path: Path) -> None:
    with serving({}, Config(data=str(tmp_path), api_keys=["sk-one"])) as server:
        assert "401: an API key is needed" in llamina("ps", "--url", server.url).stderr
        for result in (
            llamina("ps", "--url", server.url, "--api-key", "sk-one"),
            llamina("ps", LLAMINA_URL=server.url, LLAMINA_API_KEY="sk-one"),
        ):
            assert result.exit_code == 0 and f"no model is loaded at {server.url}" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="hardware: sends POSIX signals")
def test_a_server_is_ended(golden: Callable[[str], Path], tmp_path: Path) -> None:
    model = golden("stories260K.gguf")
    command = [sys.executable, "-m", "llamina", "serve", str(model), "-t", "1", "--port", "0", "--no-load"]
    with subprocess.Popen([*command, "--data", str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"listening on (\S+)", process.stderr.readline())
            assert found is not None
            assert wait_for(lambda: llamina("ps", "--url", found[1]).exit_code == 0)
            ended = llamina("stop", "--url", found[1])
            assert ended.exit_code == 0 and f"the server at {found[1]} has ended" in ended.stderr
            assert process.wait(20) in (0, -signal.SIGTERM)
        finally:
            process.kill()
