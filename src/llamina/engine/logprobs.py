"""The log-probabilities that a request asked for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.sampling import TokenLogprob, logprob_of

Row = npt.NDArray[np.float32]


class Logprobs:
    """Of generated tokens, and of the prompt's: how many of the likeliest to tell with each, None for not at all."""

    def __init__(self, prompt: Sequence[int], logprobs: int | None, prompt_logprobs: int | None) -> None:
        self.n, self.n_prompt = logprobs, prompt_logprobs
        self._prompt_tokens = prompt
        self.tokens: list[TokenLogprob | None] = []  # None: the token was put there, not drawn
        self.prompt: list[TokenLogprob | None] = [None]  # nothing comes before the first token

    @property
    def wants_prompt(self) -> bool:
        """Whether logits of the prompt are still to be looked at."""
        return self.n_prompt is not None and len(self.prompt) < len(self._prompt_tokens)

    def add_prompt(self, rows: Row) -> None:
        """Logits after the tokens that are the next to be scored; the last of them may belong to the next token."""
        if self.n_prompt is not None:
            for row, token in zip(rows, self._prompt_tokens[len(self.prompt) :], strict=False):
                self.prompt.append(logprob_of(row, int(token), self.n_prompt) if token >= 0 else None)

    def add(self, row: Row, token: int) -> None:
        if self.n is not None:
            self.tokens.append(logprob_of(row, token, self.n))

    def rewind(self, n: int, more: int) -> None:
        """The last n tokens gave way to others that were not drawn."""
        if self.n is not None:
            self.tokens[len(self.tokens) - n :] = [None] * more

    def state(self) -> list[list[Any]]:
        """Plain values."""
        return [[x and (x.token, x.logprob, x.top) for x in found] for found in (self.tokens, self.prompt)]

    def restore(self, state: list[list[Any]]) -> None:
        self.tokens, self.prompt = ([x and _read(*x) for x in found] for found in state)


def _read(token: int, logprob: float, top: Sequence[Sequence[Any]]) -> TokenLogprob:
    return TokenLogprob(token, logprob, tuple((token, value) for token, value in top))
