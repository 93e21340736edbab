"""Tokenizers beside each other on the same vocabulary: they give the same tokens."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llamina.bench.tokenization import measure_tokenizer, sample_text
from skips import import_peer

TEXT = (
    "The quick brown fox isn't 12345 years old.\n\n    def jump(over):  # the lazy dog\n        return 'Grüße, 世界'\n"
)


def quiet(*what: object) -> None:
    """Nobody watches."""


def test_the_same_tokens_by_the_same_vocabulary(golden: Callable[[str], Path]) -> None:
    record = measure_tokenizer(golden("vocab/ggml-vocab-gpt-2.gguf"), TEXT, 2, "test", quiet)
    engines = {r["engine"] for r in record["results"]}
    assert engines | set(record["missing"]) == {"llamina", "tokenizers", "tiktoken"} and "tokenizers" in engines
    for name in ("encode text", "encode lines", "decode text"):
        found = {r["engine"]: r for r in record["results"] if r["name"] == name}
        assert set(found) == engines and len({r["tokens"] for r in found.values()}) == 1
        assert all(r["rate"] > 0 and r["tokens_per_second"] > 0 for r in found.values())
        assert found["llamina"]["ratio"] == 1.0
        assert found["tokenizers"]["ratio"] == pytest.approx(found["llamina"]["rate"] / found["tokenizers"]["rate"])
    assert record["settings"]["bytes"] == len(TEXT.encode()) and record["settings"]["lines"] == 3


def test_tiktoken_takes_part(golden: Callable[[str], Path]) -> None:
    import_peer("tiktoken")
    record = measure_tokenizer(golden("vocab/ggml-vocab-qwen2.gguf"), TEXT, 1, "test", quiet)
    found = {r["engine"]: r["tokens"] for r in record["results"] if r["name"] == "encode text"}
    assert found["tiktoken"] == found["llamina"] and not record["missing"]


def test_why_a_peer_has_no_part(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    record = measure_tokenizer(golden("vocab/ggml-vocab-llama-spm.gguf"), TEXT, 1, "test", quiet)
    assert "the vocabulary is llama: only byte-level BPE" in record["missing"]["tokenizers"]
    assert {r["engine"] for r in record["results"]} == {"llamina"}
    monkeypatch.setattr("llamina.bench.tokenization.find_spec", lambda name: None)
    record = measure_tokenizer(golden("vocab/ggml-vocab-gpt-2.gguf"), TEXT, 1, "test", quiet)
    assert record["missing"]["tiktoken"] == "not installed: pip install tiktoken"


def test_every_python_has_a_text() -> None:
    assert len(sample_text()) > 100_000
