"""The algorithm that turns plain text into tokens, by the kind of vocabulary (`tokenizer.ggml.model`)."""

from collections.abc import Mapping
from typing import Any, Protocol

from llamina.tokenizer.bpe import BytePairs, DnaPairs, WhitespacePairs
from llamina.tokenizer.plamo import BestPath
from llamina.tokenizer.rwkv import LongestMatch
from llamina.tokenizer.sentencepiece import ScoredPairs
from llamina.tokenizer.unigram import UnigramPieces
from llamina.tokenizer.vocabulary import Vocabulary
from llamina.tokenizer.wordpiece import WordPieces


class Segmentation(Protocol):
    """An algorithm: byte-pair encoding, SentencePiece, WordPiece, Unigram, …"""

    def encode(self, text: str) -> list[int]: ...


def segmentation(vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> Segmentation:
    """The algorithm of a vocabulary; raises `ModelFileError` if the file lacks what it needs."""
    match vocabulary.model:
        case "llama":
            return ScoredPairs(vocabulary)
        case "bert":
            return WordPieces(vocabulary)
        case "t5":
            return UnigramPieces(vocabulary, metadata)
        case "rwkv":
            return LongestMatch(vocabulary)
        case "plamo2":
            return BestPath(vocabulary)
        case "whitespace":
            return WhitespacePairs(vocabulary, metadata)
        case "hybriddna":
            return DnaPairs(vocabulary, metadata)
        case _:
            return BytePairs(vocabulary, metadata)
