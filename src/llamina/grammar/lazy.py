"""A constraint that triggers switch on, and that ends with the text that follows its grammar."""

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidGrammar
from llamina.grammar.constraint import Constraint
from llamina.grammar.triggers import Triggers
from llamina.tokenizer import Tokenizer


class Lazy:
    """Text from a trigger on follows the grammar until nothing may follow; all other text is unconstrained."""

    done = False  # unconstrained text may always follow

    def __init__(
        self, constraint: Constraint, triggers: Triggers, tokenizer: Tokenizer, shown: frozenset[int] = frozenset()
    ) -> None:
        """`shown` are the control tokens that triggers may contain."""
        self._constraint = constraint
        self._triggers = triggers
        self._tokenizer = tokenizer
        self._shown = shown
        self._active: Constraint | None = None
        self._text = ""
        self._free = 0  # where in the text the last constrained part ended
        self._stream = tokenizer.stream(continued=True, shown=shown)

    def begin(self, executor: Executor) -> None:
        """As `Constraint.begin`."""
        if self._active is not None:
            self._active.begin(executor)

    def mask(self) -> npt.NDArray[np.uint32] | None:
        """As `Constraint.mask`; None while the text is unconstrained."""
        return None if self._active is None else self._active.mask()

    def apply(self, logits: npt.NDArray[np.float32]) -> None:
        """As `Constraint.apply`; nothing while the text is unconstrained."""
        if self._active is not None:
            self._active.apply(logits)

    def accept(self, token: int) -> bool:
        """As `Constraint.accept`; unconstrained text accepts any token."""
        if self._active is not None and not self._active.accept(token):
            return False
        self._add(token)
        return True

    def consume(self, token: int) -> None:
        """As `Constraint.consume`; unconstrained text takes any token."""
        if self._active is not None:
            self._active.consume(token)
        self._add(token)

    def _add(self, token: int) -> None:
        """Append a token's text; the constraint may become active or end there."""
        start = len(self._text)
        self._text += self._stream.push(token)
        if self._active is not None:
            self._end()
        else:
            self._look(start)

    def _look(self, start: int) -> None:
        """Become active at the first trigger that the last token completed and whose text the grammar allows."""
        free = self._free
        while (trigger := self._triggers.find(self._text, free, start)) is not None:
            at, _ = trigger
            constraint = self._constraint.fresh()
            try:
                constraint.restart(self._tokenizer.encode(self._text[at:], parse_special=True, continued=True))
            except InvalidGrammar:
                free = at + 1
                continue
            self._active = constraint
            self._end()
            return

    def _end(self) -> None:
        if self._active is not None and self._active.done:
            self._active, self._free = None, len(self._text)

    def restart(self, tokens: Sequence[int]) -> None:
        """Advance by these tokens from the beginning. Raises InvalidGrammar, and does not move, if they do not fit."""
        other = self.fresh()
        for token in tokens:
            other.consume(token)
        self._active, self._text, self._free, self._stream = other._active, other._text, other._free, other._stream

    def forced(self) -> list[int]:
        """As `Constraint.forced`; none while the text is unconstrained."""
        tokens = self._active.forced() if self._active is not None else []
        for token in tokens:
            self._text += self._stream.push(token)
        self._end()
        return tokens

    @property
    def accepting(self) -> bool:
        """Whether the answer may end here."""
        return self._active is None or self._active.accepting

    def fresh(self) -> "Lazy":
        """Return another at the beginning."""
        return Lazy(self._constraint, self._triggers, self._tokenizer, self._shown)
