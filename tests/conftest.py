"""Fixtures for all tests."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import seeing_models
import skips
from golden import arch_models
from golden_facts import SPECS, unpack
from llamina.gguf import GGUF, open_model, tensor_type, write


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(skips, "skips")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of a file of golden facts, by its name without `.xz`; see tests/golden/README.md."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if hasattr(request.config, "workerinput") else base  # by the workers of one run
    return lambda name: unpack(name, shared / "golden")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny model of a name in archs.json."""
    folder = tmp_path_factory.mktemp("archs")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            arch_models.write(SPECS[name], path)
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


@pytest.fixture(scope="session")
def ranker(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model that tells stories, with a classifier of random numbers and a template for it."""
    file, path = open_model(golden("stories260K.gguf")), tmp_path_factory.mktemp("rank") / "ranker.gguf"
    numbers = np.random.default_rng(1).standard_normal((1, 64), np.float32)
    classifier = ("cls.output.weight", (1, 64), tensor_type("F32"), numbers.view(np.uint8))
    template = {"tokenizer.chat_template.rerank": "Q: {query} A: {document}"}
    write(path, {**file.metadata, **template, "llama.pooling_type": 4}, [*file.tensors.values(), classifier])
    return path


@pytest.fixture(scope="session")
def talker(golden: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model that tells stories, with a chat template."""
    file, path = open_model(golden("stories260K.gguf")), tmp_path_factory.mktemp("talk") / "talker.gguf"
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    write(path, {**file.metadata, "tokenizer.chat_template": template}, file.tensors.values())
    return path


@pytest.fixture(scope="session")
def mmproj(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The mmproj file of a family in vision_models.py or sound_models.py, for a text model of some width."""
    folder = tmp_path_factory.mktemp("mmproj")

    def find(family: str, width: int = 64) -> Path:
        path = folder / f"mmproj-{family}-{width}.gguf"
        if not path.exists():
            seeing_models.write_encoder(family, path, width)
        return path

    return find


@pytest.fixture(scope="session")
def talking(files: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny model of a name as a file with a vocabulary and a chat template."""
    folder = tmp_path_factory.mktemp("talking")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            seeing_models.write_talking(files(name), path)
        return path

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
        skips.skip("peer", f"no network: {error}")


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
        skips.skip("peer", "gemma3-270m is not pulled: llamina pull gemma3-270m")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many of the golden models have llama.cpp's logits, where their tests ran."""
    results: dict[str, set[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if match := re.search(r"::test_llama_cpp_logits\[\w+-(.+)\]$", report.nodeid):
                results.setdefault(match[1], set()).add(outcome)
    if results:
        right = sum(outcomes == {"passed"} for outcomes in results.values())
        terminalreporter.write_line(f"golden models: {right} of {len(SPECS)} have llama.cpp's logits")
