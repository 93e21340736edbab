"""WordPiece, the model `bert`: the longest tokens that make up a word, or one unknown.

GGUF writes a token that begins a word as `▁token`, and one that goes on without BERT's `##`.
"""

import unicodedata

from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit

from llamina.tokenizer.vocabulary import WHITESPACE, Rules, Vocabulary

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
    """Text normalised as BERT does, then matched greedily."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._folding = Folding(vocabulary.rules)
        unknown = vocabulary.texts[vocabulary.special["unk"]]
        model = WordPiece(
            vocab=vocabulary.ids,
            unk_token=unknown,
            max_input_chars_per_word=1 << 30,
            continuing_subword_prefix="",
        )
        self._rust = RustTokenizer(model)
        self._rust.pre_tokenizer = WhitespaceSplit()

    def encode(self, text: str) -> list[int]:
        words = text.translate(self._folding).split(" ")
        marked = " ".join("▁" + word for word in words if word)
        return self._rust.encode(marked, add_special_tokens=False).ids


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
