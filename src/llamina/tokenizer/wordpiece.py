"""WordPiece, the model `bert`: the longest tokens that make up a word, or one unknown token.

GGUF writes a token that begins a word as `▁token`, and one that goes on without BERT's `##`.

Text is normalized and cut into words by `tokenizers`, with which these models were trained. llama.cpp keeps only the
first letter of a decomposed character and drops all marks, so it has other tokens for Hangul and some Indic scripts.
"""

from functools import lru_cache

from tokenizers import normalizers, pre_tokenizers

from llamina.tokenizer.vocabulary import Rules, Vocabulary

_CACHED_WORDS = 1 << 15
_LONGEST_WORD = 100  # characters, as in `tokenizers`: a longer word is unknown


class WordPieces:
    """Text normalized as BERT does, then matched greedily."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._normalized = _Normalized(vocabulary.rules)
        self._ids = vocabulary.ids
        self._unknown = (vocabulary.special["unk"],) if "unk" in vocabulary.special else ()
        self._longest = max(map(len, vocabulary.texts))
        self._encode_word = lru_cache(_CACHED_WORDS)(self._match)

    def encode(self, text: str) -> list[int]:
        words = text.translate(self._normalized).split(" ")
        return [token for word in words if word for token in self._encode_word(word)]

    def _match(self, word: str) -> tuple[int, ...]:
        """The longest token at each place; one unknown token if there is a place with none."""
        if len(word) > _LONGEST_WORD:
            return self._unknown
        word = "▁" + word
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


class _Normalized(dict[int, str]):
    """What each character becomes, asked of `tokenizers` when it is first seen: words have spaces between them."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._normalizer = normalizers.BertNormalizer(strip_accents=rules.strip_accents, lowercase=rules.lowercase)
        self._pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def __missing__(self, code: int) -> str:
        letters = self._normalizer.normalize_str(chr(code))
        self[code] = text = "".join(f" {letter} " if self._stands_alone(letter) else letter for letter in letters)
        return text

    def _stands_alone(self, letter: str) -> bool:
        return len(self._pre_tokenizer.pre_tokenize_str(f"a{letter}a")) == 3
