"""SentencePiece BPE, the model `llama`: merges in the order of scores, byte tokens for what is left."""

import re
from functools import lru_cache
from heapq import heapify, heappop, heappush

from llamina.tokenizer.vocabulary import Vocabulary

_CACHED_WORDS = 1 << 15


class ScoredPairs:
    """Merges neighbours whose union is a token, the best score first, the leftmost among equals.

    `tokenizers` orders merges by rank, and a rank belongs to a pair; here scores may be equal, and the place
    decides. A text falls into words at each space that no token has inside, so most work is one look
    into the cache.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        # A heap gives the smallest first.
        self._costs: list[float] = (-vocabulary.scores).tolist()
        self._bytes = [self._byte_token(byte) for byte in range(256)]
        self._words = re.compile(_word_pattern(vocabulary.texts))
        self._encode_word = lru_cache(_CACHED_WORDS)(self._merge)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in self._words.findall(text.replace(" ", "▁")):
            ids += self._encode_word(word)
        return ids

    def _merge(self, word: str) -> tuple[int, ...]:
        pieces = list(word)
        following = list(range(1, len(pieces) + 1))
        previous = list(range(-1, len(pieces) - 1))
        queue: list[tuple[float, int, int, int]] = []
        for i in range(len(pieces) - 1):
            self._offer(queue, pieces, i, i + 1)
        heapify(queue)
        while queue:
            _, left, right, length = heappop(queue)
            # A piece that was merged meanwhile is empty, or longer.
            if not pieces[left] or not pieces[right] or len(pieces[left]) + len(pieces[right]) != length:
                continue
            pieces[left] += pieces[right]
            pieces[right] = ""
            following[left] = after = following[right]
            if after < len(pieces):
                previous[after] = left
                self._offer(queue, pieces, left, after)
            if previous[left] >= 0:
                self._offer(queue, pieces, previous[left], left)
        return tuple(token for piece in pieces if piece for token in self._tokens(piece))

    def _offer(self, queue: list[tuple[float, int, int, int]], pieces: list[str], left: int, right: int) -> None:
        union = pieces[left] + pieces[right]
        token = self._ids.get(union)
        if token is not None:
            heappush(queue, (self._costs[token], left, right, len(union)))

    def _tokens(self, piece: str) -> list[int]:
        token = self._ids.get(piece)
        if token is not None:
            return [token]
        tokens = (self._bytes[byte] for byte in piece.encode())
        return [token for token in tokens if token is not None]

    def _byte_token(self, byte: int) -> int | None:
        return self._ids.get(f"<0x{byte:02X}>", self._ids.get(chr(byte)) if byte < 128 else None)


def _word_pattern(texts: list[str]) -> str:
    """Matches words: a cut is before a space, unless some token has that space after that letter."""
    letters = {before for text in texts if "▁" in text[1:] for before in re.findall(r"([^▁])(?=▁)", text)}
    if not letters:
        return r"▁*[^▁]+|▁+"
    inside = "".join(re.escape(letter) for letter in sorted(letters))
    return rf"▁*(?:[^▁]|(?<=[{inside}])▁+)+|▁+"
