"""WordPiece, the model `bert`: the longest tokens that make up a word, or one unknown.

GGUF writes a token that begins a word as `▁token`, and one that goes on without BERT's `##`.
"""

import unicodedata
from functools import lru_cache

from llamina.tokenizer.vocabulary import WHITESPACE, Rules, Vocabulary

_CACHED_WORDS = 1 << 15
# The first gap is in BERT's own list.
_IDEOGRAPHS = (
    range(0x2B920, 0x2CEB0),
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B820),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
)


class WordPieces:
    """Text normalised as BERT does, then matched greedily.

    `tokenizers` tries every length at every place, so a long word without spaces would take it forever.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._folding = Folding(vocabulary.rules)
        self._ids = vocabulary.ids
        self._unknown = (vocabulary.special["unk"],) if "unk" in vocabulary.special else ()
        self._longest = max(map(len, vocabulary.texts))
        self._encode_word = lru_cache(_CACHED_WORDS)(self._match)

    def encode(self, text: str) -> list[int]:
        words = text.translate(self._folding).split(" ")
        return [token for word in words if word for token in self._encode_word("▁" + word)]

    def _match(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        start = 0
        while start < len(word):
            end = min(len(word), start + self._longest)
            while end > start and word[start:end] not in self._ids:
                end -= 1
            if end == start:
                return self._unknown
            ids.append(self._ids[word[start:end]])
            start = end
        return tuple(ids)


class Folding(dict[int, str]):
    """What a letter becomes, found when it is first seen: itself, lower case, a space, alone, or nothing."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, code: int) -> str:
        self[code] = folded = self._fold(chr(code))
        return folded

    def _fold(self, letter: str) -> str:
        if self._rules.strip_accents:
            letter = unicodedata.normalize("NFD", letter)[0]
        if letter in WHITESPACE:
            return " "
        category = unicodedata.category(letter)
        if letter == "\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):
            return ""
        if self._rules.strip_accents and category[0] == "M":
            return ""
        folded = letter.lower()[0] if self._rules.lowercase else letter
        return f" {folded} " if _stands_alone(letter, category) else folded


def _stands_alone(letter: str, category: str) -> bool:
    if category[0] == "P" or (letter.isascii() and category[0] == "S"):
        return True
    return any(ord(letter) in block for block in _IDEOGRAPHS)
