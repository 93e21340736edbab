"""Tokenizers of the golden vocabularies, each read once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from llamina.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(golden: Callable[[str], Path]) -> Callable[[str], Tokenizer]:
    @cache
    def find(name: str) -> Tokenizer:
        return Tokenizer.from_gguf(golden(f"vocab/ggml-vocab-{name}.gguf"))

    return find
