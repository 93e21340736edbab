"""Which file of a repository is meant, and what failures mean."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_hub import serving
from llamina.errors import DownloadError, ModelNotFound, RequestError
from llamina.hub import huggingface

FILES = [
    "README.md",
    "mmproj-F16.gguf",
    "m-Q2_K.gguf",
    "m-q4_k_m.gguf",
    "m-Q4_K_S.gguf",
    "BF16/m-BF16-00001-of-00002.gguf",
    "BF16/m-BF16-00002-of-00002.gguf",
]


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        (None, "m-q4_k_m.gguf"),
        ("Q4_K_M", "m-q4_k_m.gguf"),
        ("q4_k_s", "m-Q4_K_S.gguf"),
        ("bf16", "BF16/m-BF16-00001-of-00002.gguf"),
        ("m-Q2_K", "m-Q2_K.gguf"),
        ("M-Q2_K.gguf", "m-Q2_K.gguf"),
    ],
)
def test_the_file_that_is_meant(quant: str | None, expected: str) -> None:
    assert huggingface.choose(FILES, quant, "u/r") == expected


def test_without_the_preferred_quant_it_is_the_first() -> None:
    assert huggingface.choose(["b-Q8_0.gguf", "a-Q5_K_M.gguf"], None, "u/r") == "a-Q5_K_M.gguf"


def test_a_quant_that_is_not_there() -> None:
    with pytest.raises(ModelNotFound, match="u/r has no Q4_K: it has BF16, Q2_K, Q4_K_S, Q4_K_M"):
        huggingface.choose(FILES, "Q4_K", "u/r")


def test_a_repository_without_gguf() -> None:
    with pytest.raises(ModelNotFound, match="no GGUF files"):
        huggingface.choose(["model.safetensors"], None, "u/r")


@pytest.mark.parametrize("name", ["user", "user/", "/repo", "a/b/c", "user/re po", "../x"])
def test_what_is_no_repository(name: str) -> None:
    with pytest.raises(RequestError, match="user/repo"):
        huggingface.parse(name)


def test_without_a_network_the_cache_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("llamina.hub.web.PAUSE", 0.0)
    with pytest.raises(DownloadError, match=r"127.0.0.1:9 could not be reached"):
        huggingface.pull("u/r", lambda *_: None)
    file = tmp_path / "hf" / "models--u--r" / "snapshots" / "c" / "m-Q8_0.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    assert huggingface.pull("U/R", lambda *_: None) == file
    with pytest.raises(ModelNotFound, match="it has Q8_0"):
        huggingface.pull("u/r:Q2_K", lambda *_: None)


def test_from_repository_to_answer(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """The command line against a hub of our own: fetch, run, list, delete."""
    model = golden("stories260K.gguf").read_bytes()
    with serving({"m-Q8_0.gguf": model + b"\0", "m-q4_k_m.gguf": model}) as hub:
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
        }

        def llamina(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "llamina", *arguments]
            return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

        ran = llamina("run", "-hf", "user/repo", "Once", "-n", "5", "--temp", "0", "--backend", "reference")
        assert (ran.returncode, ran.stdout) == (0, " upon a time, there\n")
        assert llamina("pull", "User/Repo:q2_k").returncode == 3
        assert llamina("pull", "user/repo:q8_0").stdout.endswith("m-Q8_0.gguf\n")
        assert llamina("rm", "user/repo:Q8_0").returncode == 0
        assert llamina("ls").stdout.splitlines()[1].startswith("user/repo:Q4_K_M")
        missing = llamina("pull", "user/other")
        assert missing.returncode == 3 and "is not on Hugging Face" in missing.stderr
