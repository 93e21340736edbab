"""Small vocabularies of the kinds that no golden file covers, as metadata."""

import random
from typing import Any

import numpy as np

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_BASE: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "test",
    "llama.context_length": np.uint32(64),
    "llama.embedding_length": np.uint32(8),
    "llama.block_count": np.uint32(1),
    "llama.feed_forward_length": np.uint32(8),
    "llama.attention.head_count": np.uint32(1),
    "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
}


def metadata(model: str, tokens: list[tuple[str, float, int]], **more: Any) -> dict[str, Any]:
    """A vocabulary of (text, score, type)."""
    return {
        **_BASE,
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": [text for text, _, _ in tokens],
        "tokenizer.ggml.scores": np.array([score for _, score, _ in tokens], np.float32),
        "tokenizer.ggml.token_type": np.array([kind for _, _, kind in tokens], np.int32),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def _bytes(score: float = 0.0) -> list[tuple[str, float, int]]:
    return [(f"<0x{b:02X}>", score, BYTE) for b in range(256)]


def _words(letters: str, count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    drawn = ("".join(rng.choice(letters) for _ in range(rng.randint(2, 6))) for _ in range(count))
    return list(dict.fromkeys(drawn))


def sentencepiece(**more: Any) -> dict[str, Any]:
    """Scores with many ties, and tokens with spaces inside."""
    words = _words("aab▁", 150, 1)
    rng = random.Random(2)
    pieces = [(word, float(-rng.randint(1, 5)), NORMAL) for word in [*words, *"ab▁é"]]
    special = [
        ("<unk>", 0.0, UNKNOWN),
        ("<s>", 0.0, CONTROL),
        ("</s>", 0.0, CONTROL),
        ("<tool>", 0.0, USER_DEFINED),
    ]
    return metadata("llama", [*special, *_bytes(), *pieces], **more)


def unigram(**more: Any) -> dict[str, Any]:
    rng = random.Random(3)
    pieces = [(word, -rng.random() * 9, NORMAL) for word in [*_words("ab▁é你", 200, 4), *"ab▁"]]
    special = [
        ("<pad>", 0.0, CONTROL),
        ("</s>", 0.0, CONTROL),
        ("<unk>", 0.0, UNKNOWN),
        ("<tool>", 0.0, USER_DEFINED),
    ]
    return metadata("t5", [*special, *pieces, ("bbbaé", -1.0, UNUSED)], **more)


def rwkv() -> dict[str, Any]:
    texts = ["<s>", *(chr(b) if 33 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in range(256))]
    texts += ["\\n\\n", "\\t\\t", "aa", "aaab", "ab", "\\\\n", "你", "\\xe4\\xbd", "'", "it's"]
    return metadata("rwkv", [(text, 0.0, NORMAL) for text in dict.fromkeys(texts)])


def plamo() -> dict[str, Any]:
    special = [
        ("<|plamo:unk|>", 0.0, UNKNOWN),
        ("<|plamo:bos|>", 0.0, CONTROL),
        ("<|plamo:eos|>", 0.0, CONTROL),
    ]
    rng = random.Random(5)
    pieces = [(word, -rng.random() * 9, NORMAL) for word in [*_words("ab 你é", 200, 6), *"ab你"]]
    return metadata("plamo2", [*special, ("<|plamo:pad|>", 0.0, CONTROL), *_bytes(), *pieces])


def dna() -> dict[str, Any]:
    letters = [chr(b) for b in range(33, 127)] + ["Ġ", "Ċ"]
    merges = ["C C", "CC C", "A C"]
    words = ["CC", "CCC", "AC"]
    kmers = [f"{word}\ue000" for word in ("ACGTAC", "CCCCCC", "AAAAAA", "GTAAAA")]
    special = [("<dna>", 0.0, USER_DEFINED), ("</dna>", 0.0, USER_DEFINED), ("<oov>", 0.0, NORMAL)]
    # Not special, or the text would be cut at the tags before this vocabulary sees them.
    plain = [(text, score, NORMAL) for text, score, _ in special]
    tokens = [
        *((text, 0.0, NORMAL) for text in [*letters, *words]),
        *plain,
        *((k, 0.0, NORMAL) for k in kmers),
    ]
    return metadata("hybriddna", tokens, pre="gpt-2", merges=merges)


def whitespace(**more: Any) -> dict[str, Any]:
    letters = [chr(b) for b in range(33, 127)] + ["é", "你"]
    merges = ["a b", "ab c", "é a"]
    tokens = [(text, 0.0, NORMAL) for text in [*letters, "ab", "abc", "éa"]]
    return metadata("whitespace", tokens, pre="whitespace", merges=merges, **more)


def letters(pre: str = "gpt-2", **more: Any) -> dict[str, Any]:
    """Byte pairs without a merge: one token for each byte, and some special ones."""
    from llamina.tokenizer.pieces import byte_letters

    special = [("<|im_start|>", 0.0, CONTROL), ("<|im_end|>", 0.0, CONTROL), ("<think>", 0.0, USER_DEFINED)]
    tokens = [*((letter, 0.0, NORMAL) for letter in byte_letters()), *special]
    return metadata("gpt2", tokens, pre=pre, merges=["a b"], **more)
