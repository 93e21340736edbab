"""DRY's sequence breakers: strings, as the tokens that can spell or begin them."""

from collections.abc import Iterable

from llamina.sampling.penalties import Breakers
from llamina.tokenizer import Tokenizer


class BreakerTable:
    """What each string amounts to in a vocabulary; worked out once, for it takes a look at every token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, Breakers] = {}

    def __call__(self, texts: Iterable[str]) -> Breakers:
        """Tokens that contain one of the strings, and tokens that end in its beginning with what must follow."""
        found: Breakers = {}
        for text in texts:
            if text not in self._known:
                self._known[text] = self._breakers(text.encode())
            for token, tails in self._known[text].items():
                found.setdefault(token, []).extend(tail for tail in tails if tail not in found[token])
        return found

    def _breakers(self, text: bytes) -> Breakers:
        tails = [(text[:i], self._tail(text[i:])) for i in range(1, len(text))]
        found: Breakers = {}
        for token in range(self._tokenizer.vocab_size):
            piece = self._tokenizer.token_bytes(token)
            if text in piece:
                found[token] = [[]]
            elif begun := [tail for head, tail in tails if piece.endswith(head)]:
                found[token] = begun
        return found

    def _tail(self, rest: bytes) -> list[int]:
        return self._tokenizer.encode(rest.decode("utf-8", "replace"))
