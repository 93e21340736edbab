"""RWKV's vocabulary, the model `rwkv`: the longest token at each byte of the text."""

import re

from llamina.tokenizer.vocabulary import Vocabulary

_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_ESCAPED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


def unescape(text: str) -> bytes:
    """The bytes of an RWKV token, which GGUF writes as a Python literal without quotes."""

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPED.get(code, code)

    return _ESCAPE.sub(byte, text.encode("utf-8", "surrogateescape"))


class LongestMatch:
    """Greedy matching of bytes. A byte that no token begins with is one unknown token, or none if there is no such."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = {unescape(text): token for token, text in enumerate(vocabulary.texts)}
        self._unknown = vocabulary.special.get("unk")
        lengths: dict[bytes, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}

    def encode(self, text: str) -> list[int]:
        data = text.encode()
        ids: list[int] = []
        place = 0
        while place < len(data):
            token, length = self._longest(data, place)
            ids += [] if token is None else [token]
            place += length
        return ids

    def _longest(self, data: bytes, place: int) -> tuple[int | None, int]:
        for head in (data[place : place + 2], data[place : place + 1]):
            for length in self._lengths.get(head, ()):
                token = self._ids.get(data[place : place + length])
                if token is not None and place + length <= len(data):
                    return token, length
        return self._unknown, 1
