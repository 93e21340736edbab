"""Tokens back into text, one by one."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamina.tokenizer.tokenizer import Tokenizer


class Detokenizer:
    """Text out of tokens as they come: a character is held back until its last byte is there.

    The pieces and what `flush` returns make up `Tokenizer.decode` of the tokens. Bytes that are no UTF-8
    become U+FFFD.
    """

    def __init__(
        self, tokenizer: "Tokenizer", skip_special: bool, continued: bool, shown: frozenset[int] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown = shown
        self._strips_space = tokenizer.add_space_prefix and not continued
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that a token completes, often none."""
        strips, self._strips_space = self._strips_space, False
        if self._skip_special and self._tokenizer.is_special(token) and token not in self._shown:
            return ""
        piece = self._tokenizer.token_bytes(token)
        return self._utf8.decode(piece.removeprefix(b" ") if strips else piece)

    def flush(self) -> str:
        """What is held back at the end: bytes that never became a character."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest
