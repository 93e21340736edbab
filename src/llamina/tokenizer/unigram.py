"""Unigram, the model `t5`: the likeliest sequence of pieces, after SentencePiece's normalisation."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import Unigram

from llamina.errors import ModelFileError
from llamina.tokenizer.vocabulary import Mark, Vocabulary


class UnigramPieces:
    """Text normalized by the file's map of characters, then the likeliest sequence of pieces (Viterbi)."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        self._rules = vocabulary.rules
        self._map = CharacterMap(metadata.get("tokenizer.ggml.precompiled_charsmap"))
        self._kept = _prefixes(vocabulary)
        self._rust = RustTokenizer(Unigram(_pieces(vocabulary), vocabulary.special.get("unk"), False))

    def encode(self, text: str) -> list[int]:
        normal = self._spaced(self._mapped(text))
        return self._rust.encode(normal, add_special_tokens=False).ids if normal else []

    def _mapped(self, text: str) -> str:
        out, place = [], 0
        while place < len(text):
            kept = self._kept_length(text, place)
            if kept:
                out.append(text[place : place + kept])
                place += kept
            else:
                replacement, length = self._map.longest(text, place)
                out.append(replacement)
                place += length
        return "".join(out)

    def _kept_length(self, text: str, place: int) -> int:
        length = 0
        while self._kept and place + length < len(text) and text[place : place + length + 1] in self._kept:
            length += 1
        return length

    def _spaced(self, text: str) -> str:
        prefix = self._rules.add_space_prefix
        if self._rules.remove_extra_spaces:
            return "".join("▁" + word for word in text.split(" ") if word)
        spaces = len(text) - len(text.lstrip(" "))
        # The space put before a text stands before its first word, after the spaces the text begins with.
        head = "▁" * spaces + ("▁" if prefix and spaces < len(text) else "")
        return head + text[spaces:].replace(" ", "▁")


class CharacterMap:
    """SentencePiece's precompiled map: a double array (a trie in one table of integers), then replacements.

    An entry holds the byte that leads to it in bits 0-7, whether a replacement follows in bit 8, and the
    distance to its children in bits 10-30, times 256 if bit 9 is set.
    """

    def __init__(self, blob: Any) -> None:
        data = b"" if blob is None else np.asarray(blob).astype(np.uint8).tobytes()
        size = int.from_bytes(data[:4], "little")
        if data and (size + 4 >= len(data) or size % 4):
            raise ModelFileError(
                f"tokenizer.ggml.precompiled_charsmap is {len(data)} bytes, its table {size}: convert again"
            )
        self._table: list[int] = np.frombuffer(data[4 : 4 + size], "<u4").tolist()
        self._replacements = data[4 + size :]
        self._single = lru_cache(1 << 14)(self._match_letter)

    def longest(self, text: str, place: int) -> tuple[str, int]:
        """What the longest mapped sequence at a place becomes, and its length; an unmapped letter stays."""
        letter = text[place]
        replacement, node = self._single(letter)
        best = (letter if replacement is None else replacement, 1)
        length = 1
        while node is not None and place + length < len(text):
            found, node = self._match(text[place + length], node)
            length += 1
            if found is not None:
                best = (found, length)
        return best

    def _match_letter(self, letter: str) -> tuple[str | None, int | None]:
        return self._match(letter, _children(self._table[0], 0)) if self._table else (None, None)

    def _match(self, letter: str, node: int) -> tuple[str | None, int | None]:
        """Walk one letter on: its replacement, and the node to go on from."""
        found = None
        for byte in letter.encode():
            node ^= byte
            if byte == 0 or node >= len(self._table) or self._table[node] & 0x800000FF != byte:
                return None, None
            entry = self._table[node]
            node = _children(entry, node)
            found = self._replacement(self._table[node] & 0x7FFFFFFF) if entry >> 8 & 1 else None
        return found, node

    def _replacement(self, start: int) -> str:
        end = self._replacements.index(b"\0", start)
        return self._replacements[start:end].decode("utf-8", "replace")


def _children(entry: int, node: int) -> int:
    return node ^ (entry >> 10 << ((entry & 1 << 9) >> 6))


def _pieces(vocabulary: Vocabulary) -> list[tuple[str, float]]:
    """Pieces and scores; a token that text may not become gets a spelling that no text has."""
    spellable = (vocabulary.marks & (Mark.NORMAL | Mark.USER_DEFINED | Mark.UNUSED)) != 0
    normal = (vocabulary.marks & Mark.NORMAL) != 0
    scores = np.where((vocabulary.marks & Mark.USER_DEFINED) != 0, 0.0, vocabulary.scores.astype(np.float64))
    # The cost of an unknown letter hangs on the worst score of a normal token.
    floor = scores[normal].min(initial=0.0)
    scores = np.where(normal, scores, np.maximum(scores, floor))
    return [
        (text if usable else f"\0{i}\0", score)
        for i, (text, usable, score) in enumerate(
            zip(vocabulary.texts, spellable.tolist(), scores.tolist(), strict=True)
        )
    ]


def _prefixes(vocabulary: Vocabulary) -> frozenset[str]:
    """Beginnings of the tokens that users defined: such text is never mapped."""
    texts = (vocabulary.texts[token] for token in vocabulary.with_mark(Mark.USER_DEFINED))
    return frozenset(text[:end] for text in texts for end in range(1, len(text) + 1))
