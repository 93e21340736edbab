"""Vocabularies to follow grammars with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llamina import Tokenizer
from llamina.grammar.compiler import Compiler


@pytest.fixture(scope="session")
def tokenizer(golden: Callable[[str], Path]) -> Tokenizer:
    """GPT-2's 50 thousand tokens: byte-level BPE."""
    return Tokenizer.from_gguf(golden("vocab/ggml-vocab-gpt-2.gguf"))


@pytest.fixture(scope="session")
def compiler(tokenizer: Tokenizer) -> Compiler:
    return Compiler(tokenizer, tokenizer.vocab_size)


@pytest.fixture(scope="session")
def sentencepiece(golden: Callable[[str], Path]) -> Tokenizer:
    """Llama 2's 32 thousand tokens."""
    return Tokenizer.from_gguf(golden("vocab/ggml-vocab-llama-spm.gguf"))
