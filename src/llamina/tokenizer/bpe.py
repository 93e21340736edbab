"""Byte-pair encoding by merge ranks: the models `gpt2`, `gemma4`, `whitespace` and `hybriddna`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import BPE

from llamina.errors import ModelFileError
from llamina.tokenizer.pretokenizers import Pretokenizer
from llamina.tokenizer.vocabulary import WHITESPACE, Vocabulary

# Python's own \s counts four control characters among the spaces.
_SPACES = re.compile(f"[{WHITESPACE}]+")
_DNA = re.compile(r"<dna>(.*?)(</dna>|\Z)", re.DOTALL)
_DNA_WORD = 6
# Keeps the words of a DNA vocabulary apart from the words of its text vocabulary that are spelt alike.
_DNA_MARKER = "\ue000"
_HOLE = "\0hole\0"


class BytePairs:
    """Text split into words by regular expressions (pre-tokenization), then merged by rank."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        assert vocabulary.pre is not None
        merges = metadata.get("tokenizer.ggml.merges")
        if merges is None and metadata.get("tokenizer.ggml.pre") != "kimi-k2":
            raise ModelFileError("tokenizer.ggml.merges is missing: convert the model again with its vocabulary")
        self._vocabulary = vocabulary
        self._hole = len(vocabulary.texts)
        self._escape = vocabulary.rules.escape_spaces
        self._rust = RustTokenizer(_model(vocabulary, vocabulary.pre, _pairs(merges or ())))
        self._rust.pre_tokenizer = cuts(vocabulary.pre)

    def encode(self, text: str) -> list[int]:
        if not self._escape:
            return self._ids(text)
        return self._encode_lines(text.replace(" ", "▁"))

    def _ids(self, text: str) -> list[int]:
        ids = self._rust.encode(text, add_special_tokens=False).ids
        return [token for token in ids if token != self._hole] if self._hole in ids else ids

    def _encode_lines(self, text: str) -> list[int]:
        """A run of newlines that is a token is that token, whatever the merges say."""
        ids: list[int] = []
        for piece in re.findall(r"[^\n]+|\n+", text):
            token = self._vocabulary.ids.get(piece) if piece[0] == "\n" else None
            ids += self._ids(piece) if token is None else [token]
        return ids


class WhitespacePairs:
    """Byte pairs between spaces; the spaces themselves are dropped."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        self._pairs = BytePairs(vocabulary, metadata)
        self._lowercase = vocabulary.rules.lowercase

    def encode(self, text: str) -> list[int]:
        # One letter for one letter, as the vocabularies were made: some have two in lower case.
        lower = "".join(c.lower()[0] for c in text) if self._lowercase else text
        return [token for word in _SPACES.split(lower) if word for token in self._pairs.encode(word)]


class DnaPairs:
    """Byte pairs, with words of six bases between `<dna>` and `</dna>`."""

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        self._pairs = BytePairs(vocabulary, metadata)
        self._ids = dict(vocabulary.ids)
        self._has_dna = all(tag in self._ids for tag in ("<dna>", "</dna>", "<oov>"))
        for token, text in enumerate(vocabulary.texts):
            vocabulary.texts[token] = text.removesuffix(_DNA_MARKER)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        end = 0
        for match in _DNA.finditer(text) if self._has_dna else ():
            ids += self._text(text[end : match.start()])
            ids += [self._ids["<dna>"], *self._words(match[1])]
            ids += [self._ids["</dna>"]] if match[2] else []
            end = match.end()
        return ids + self._text(text[end:])

    def _text(self, text: str) -> list[int]:
        return self._pairs.encode(text) if text else []

    def _words(self, bases: str) -> Iterable[int]:
        data = bases.encode().upper()
        for start in range(0, len(data), _DNA_WORD):
            word = data[start : start + _DNA_WORD].ljust(_DNA_WORD, b"A").decode("utf-8", "replace")
            yield self._ids.get(word + _DNA_MARKER, self._ids["<oov>"])


def _pairs(merges: Iterable[str]) -> list[tuple[str, str]]:
    pairs = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not left:  # a token may begin with the space itself
            left, space, right = merge[:1] + merge[1:].partition(" ")[0], *merge[1:].partition(" ")[1:]
        if space:
            pairs.append((left, right))
    return pairs


def _model(vocabulary: Vocabulary, pre: Pretokenizer, pairs: list[tuple[str, str]]) -> BPE:
    """The merges as `tokenizers` runs them.

    A character that is no token becomes `_HOLE`, whose id is the one after the last, lest its neighbours merge.
    """

    def build(ids: dict[str, int], pairs: list[tuple[str, str]]) -> BPE:
        return BPE(
            ids | {_HOLE: len(vocabulary.texts)},
            pairs,
            unk_token=_HOLE,
            ignore_merges=pre.ignore_merges,
            byte_fallback=not pre.byte_level,
        )

    try:
        return build(vocabulary.ids, pairs)
    except Exception:  # merges of tokens that are missing, or text that is not UTF-8: neither can ever match
        ids = {text: token for text, token in vocabulary.ids.items() if _is_utf8(text)}
        pairs = [(left, right) for left, right in pairs if left in ids and right in ids and left + right in ids]
        return build(ids, pairs)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def cuts(pre: Pretokenizer) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer of `tokenizers` that splits text by these expressions, and spells bytes as letters."""
    steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    if pre.byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)
