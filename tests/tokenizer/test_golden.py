"""The ids that llama.cpp gave, and the ids that it gives."""

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llamina.gguf import write
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.vocabulary import Mark

sys.path.insert(0, str(Path(__file__).parent))

import vocabularies

NAMES = [
    "bert-bge",
    "deepseek-llm",
    "falcon",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "phi-3",
    "qwen2",
    "starcoder",
]
MADE = {
    "sentencepiece": vocabularies.sentencepiece,
    "sentencepiece without prefix": lambda: vocabularies.sentencepiece(add_space_prefix=False, add_eos_token=True),
    "unigram": vocabularies.unigram,
    "unigram with prefix": lambda: vocabularies.unigram(add_space_prefix=True),
    "unigram, spaces merged": lambda: vocabularies.unigram(add_space_prefix=True, remove_extra_whitespaces=True),
    "rwkv": vocabularies.rwkv,
    "plamo": vocabularies.plamo,
    "dna": vocabularies.dna,
    "whitespace": vocabularies.whitespace,
    "letters": vocabularies.letters,
    "afmoe": lambda: vocabularies.letters("afmoe"),
}
# fmt: off
SNIPPETS = [
    "Hello", "world", " ", "  ", "   ", "\n", "\r\n", "\t", "'s", "'LL", "I'm",
    "don't", "1", "12", "123", "12345", "3.14", "\xbd", "\u0967\u0968\u0969",
    "\u4f60\u597d", "\u4e16\u754c", "\u65e5\u672c\u8a9e", "\u30c6\u30b9\u30c8",
    "\ud55c\uad6d\uc5b4", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0645\u0631\u062d\u0628\u0627",
    "\u060c", "\u05e9\u05dc\u05d5\u05dd", "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\xe9\xe0\xfc", "é", "\u017f", "\u0130", "\xdf", "\ufb01", "\U0001f600",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f1e9\U0001f1ea", "\u200b", "\u3000", "\xa0", "\x85", "\x00", "\x1f",
    "\ufeff", "\ufffd", "\u2026", "\u3002", "\u201cx\u201d", "<s>", "</s>", "<unk>",
    "<|im_end|>", "<0x0A>", "\u2581", "\u0120", "...", "//",
    "def f(x):\n    return x", "camelCase", "ALLCAPS", "\xb2", "\u20ac", "\u2211",
    "\U00020000", "\uff41\uff42\uff43", "\uff76\uff9e", "\u1100\u1161", "a", "b",
    "ab", "aab", " ab", "abc", "<tool>", "<think>", "<dna>ACGTACCCCCCCGT</dna>",
    "<dna>acgt",
]
# fmt: on

# Of WordPiece: llama.cpp keeps the first letter of a decomposed syllable, and takes U+0085 for a space, while BERT's
# own tokenizer keeps all and drops it (test_wordpiece.py).
OTHERWISE = re.compile("[\uac00-\ud7a3\x85]")


def random_text(rng: random.Random, special: list[str]) -> str:
    parts = [rng.choice(SNIPPETS) for _ in range(rng.randint(1, 12))]
    if special and rng.random() < 0.4:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(special))
    return "".join(parts)


@pytest.mark.parametrize("name", NAMES)
def test_stored_ids(name: str, golden: Callable[[str], Path], tokenizer: Callable[[str], Tokenizer]) -> None:
    *texts, end = golden("vocab/strings.txt").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    answers = golden(f"vocab/ggml-vocab-{name}.ids").read_text().splitlines()
    assert not end
    for text, answer in zip(texts, answers, strict=True):
        assert tokenizer(name).encode(text) == [int(token) for token in answer.split()], text


@pytest.mark.parametrize("name", NAMES)
def test_same_as_llama_cpp(name: str, golden: Callable[[str], Path], tokenizer: Callable[[str], Tokenizer]) -> None:
    compare(str(golden(f"vocab/ggml-vocab-{name}.gguf")), tokenizer(name), 300)


@pytest.mark.parametrize("name", MADE)
def test_made_vocabularies_same_as_llama_cpp(name: str, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    write(path, MADE[name](), [])
    compare(str(path), Tokenizer.from_gguf(path), 600)


def compare(path: str, tokenizer: Tokenizer, count: int) -> None:
    """Ids, pieces, marks, ends and decoded text of random strings."""
    from oracle import Oracle

    oracle = Oracle(path)
    rng = random.Random(path.rpartition("/")[2])
    marked = tokenizer.vocabulary.with_mark(Mark.CONTROL | Mark.USER_DEFINED | Mark.UNKNOWN)
    special = [tokenizer.token_text(token) for token in marked]
    for _ in range(count):
        text = random_text(rng, special)
        if tokenizer.vocabulary.model == "bert":
            text = OTHERWISE.sub("", text)
        add, parse = rng.random() < 0.5, rng.random() < 0.5
        expected = oracle.encode(text, add, parse)
        assert tokenizer.encode(text, add, parse) == expected, (text, add, parse)
        # llama.cpp writes letters outside GPT-2's alphabet as an error message.
        if b"[UNK_BYTE" not in (decoded := oracle.decode(expected, add)):
            assert tokenizer.decode(expected, not add, cleaned=True) == decoded.decode("utf-8", "replace")
    assert tokenizer.eog == oracle.eog()
    assert (tokenizer.bos, tokenizer.eos) == tuple(
        None if (token := oracle.number(role)) < 0 else token for role in ("bos", "eos")
    )
    assert (tokenizer.add_bos, tokenizer.add_eos) == tuple(
        bool(oracle.number(f"get_add_{role}")) for role in ("bos", "eos")
    )
    for token in rng.sample(range(tokenizer.vocab_size), min(tokenizer.vocab_size, 2000)):
        assert int(tokenizer.vocabulary.marks[token]) == oracle.attr(token)
        if b"[UNK_BYTE" not in (piece := oracle.piece(token)):
            assert tokenizer.token_bytes(token) == piece
