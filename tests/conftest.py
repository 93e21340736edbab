"""Fixtures for all tests."""

import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from llamina.gguf import GGUF, open_model

GOLDEN = Path(os.environ.get("LLAMINA_GOLDEN") or Path(__file__).parents[2] / "shared" / "golden")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Path]:
    """The path of a file of facts computed by llama.cpp; without it the test skips, and in CI fails."""

    def find(name: str) -> Path:
        path = GOLDEN / name
        if not path.exists():
            message = f"{path} is not there: set LLAMINA_GOLDEN to the folder of golden facts"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        return path

    return find


@pytest.fixture(scope="session")
def files(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny model of a name, written by the golden facts' own script."""
    spec = importlib.util.spec_from_file_location("arch_models", golden("arch_models.py"))
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    specs = json.loads(golden("archs.json").read_text())
    folder = tmp_path_factory.mktemp("archs")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            script.write(specs[name], path)
        return path

    return find


@pytest.fixture(scope="session")
def speaking(files: Callable[[str], Path]) -> Callable[[str], GGUF]:
    """The tiny model of a name with texts of no meaning for its tokens, so that there can be generations."""

    def find(name: str) -> GGUF:
        file = open_model(files(name))
        size = file.tensors["token_embd.weight"].shape[0]
        texts = {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [f"<{i}>" for i in range(size)],
            "tokenizer.ggml.scores": np.zeros(size, np.float32),
            "tokenizer.ggml.token_type": np.ones(size, np.int32),
        }
        file.metadata.update(texts)
        return file

    return find


def pulled(name: str) -> Path:
    """A model pulled once; without a network the test skips, and in CI fails."""
    from llamina import hub
    from llamina.errors import DownloadError

    try:
        return hub.pull(name)
    except DownloadError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model."""
    return pulled("smollm2")


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M, 253 MB: fetched in CI, elsewhere only if it has been pulled already."""
    from llamina import hub
    from llamina.errors import ModelNotFound

    try:
        return hub.find("gemma3-270m")
    except ModelNotFound:
        if os.environ.get("CI") == "true":
            return pulled("gemma3-270m")
        pytest.skip("gemma3-270m is not here: llamina pull gemma3-270m")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many of the golden models have llama.cpp's logits, where their tests ran."""
    results: dict[str, set[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if match := re.search(r"::test_llama_cpp_logits\[\w+-(.+)\]$", report.nodeid):
                results.setdefault(match[1], set()).add(outcome)
    if results and (GOLDEN / "archs.json").exists():
        right = sum(outcomes == {"passed"} for outcomes in results.values())
        total = len(json.loads((GOLDEN / "archs.json").read_text()))
        terminalreporter.write_line(f"golden models: {right} of {total} have llama.cpp's logits")
