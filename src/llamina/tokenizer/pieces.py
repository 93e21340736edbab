"""The bytes that tokens stand for, and the spaces that some vocabularies put between them."""

import re

from llamina.tokenizer.rwkv import unescape
from llamina.tokenizer.vocabulary import BYTE_PAIR_MODELS, Mark, Vocabulary, byte_value

_SPELT = Mark.CONTROL | Mark.UNKNOWN | Mark.USER_DEFINED


def byte_letters() -> dict[str, int]:
    """GPT-2's alphabet: a visible letter for each byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


class Pieces:
    """The bytes that each token adds to a text, worked out when they are first asked for.

    Raises `ModelFileError` if a byte token is not spelt like one.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._found: dict[int, bytes] = {}
        spelt_in_letters = vocabulary.model in BYTE_PAIR_MODELS and not vocabulary.rules.escape_spaces
        self._letters = byte_letters() if spelt_in_letters else {}
        self._bytes: dict[int, bytes] = {}
        if vocabulary.model != "rwkv":  # which spells bytes in a way of its own
            texts = ((token, vocabulary.texts[token]) for token in vocabulary.with_mark(Mark.BYTE))
            self._bytes = {token: bytes([byte_value(text)]) for token, text in texts}

    def __getitem__(self, token: int) -> bytes:
        piece = self._found.get(token)
        if piece is None:
            piece = self._found[token] = self._piece(token)
        return piece

    def _piece(self, token: int) -> bytes:
        """A token that is neither text, byte nor special adds nothing."""
        text, mark = self._vocabulary.texts[token], int(self._vocabulary.marks[token])
        match self._vocabulary.model:
            case "rwkv":
                return unescape(text)
            case "plamo2":
                return self._bytes.get(token) or _utf8(text)
        if mark & _SPELT:
            return _utf8(text)
        if mark & Mark.NORMAL:
            return _from_letters(text, self._letters) if self._letters else _utf8(text.replace("▁", " "))
        return self._bytes.get(token, b"")


def _from_letters(text: str, letters: dict[str, int]) -> bytes:
    try:
        return bytes([letters[letter] for letter in text])
    except KeyError:  # not of the alphabet: written as it is
        return b"".join(bytes([letters[c]]) if c in letters else _utf8(c) for c in text)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def clean(text: str) -> str:
    """Without the spaces that some vocabularies put before punctuation and contractions."""
    text = re.sub(r"(?<=.) (?=[?!.,])|^ (?=[?!.,])", "", text, flags=re.DOTALL)
    text = re.sub(r" ' ", "'", text)
    return re.sub(r" (?='(?:[sm]|re|ve))", "", text)
