"""A grammar that holds from a trigger on."""

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt

from llamina.errors import InvalidGrammar
from llamina.grammar.constraint import Constraint
from llamina.grammar.triggers import Triggers
from llamina.tokenizer import Tokenizer


class Lazy:
    """A constraint that comes and goes: what its triggers begin follows the grammar, all else is free."""

    done = False  # something can always come

    def __init__(
        self, constraint: Constraint, triggers: Triggers, tokenizer: Tokenizer, shown: frozenset[int] = frozenset()
    ) -> None:
        """`shown` are the control tokens that are part of the text."""
        self._constraint = constraint
        self._triggers = triggers
        self._tokenizer = tokenizer
        self._shown = shown
        self._holding: Constraint | None = None
        self._text = ""
        self._free = 0  # where in the text it ended to hold
        self._stream = tokenizer.stream(continued=True, shown=shown)

    def begin(self, executor: Executor) -> None:
        """As `Constraint.begin`."""
        if self._holding is not None:
            self._holding.begin(executor)

    def apply(self, logits: npt.NDArray[np.float32]) -> None:
        """As `Constraint.apply`, where it holds."""
        if self._holding is not None:
            self._holding.apply(logits)

    def consume(self, token: int) -> None:
        """Go on by a token, after which the grammar may hold, or not any more."""
        start = len(self._text)
        self._text += self._stream.push(token)
        if self._holding is not None:
            self._holding.consume(token)
            self._let_go()
        else:
            self._look(start)

    def _look(self, start: int) -> None:
        """Begin with the first trigger that came with the last token, if the grammar allows what came after it."""
        free = self._free
        while (found := self._triggers.find(self._text, free, start)) is not None:
            constraint = self._constraint.fresh()
            try:
                constraint.restart(self._tokenizer.encode(self._text[found[0] :], parse_special=True, continued=True))
            except InvalidGrammar:
                free = found[0] + 1
                continue
            self._holding = constraint
            self._let_go()
            return

    def _let_go(self) -> None:
        if self._holding is not None and self._holding.done:
            self._holding, self._free = None, len(self._text)

    def restart(self, tokens: Sequence[int]) -> None:
        """Stand where these tokens lead from the beginning; if the grammar does not allow them, stay."""
        twin = self.fresh()
        for token in tokens:
            twin.consume(token)
        self._holding, self._text, self._free, self._stream = twin._holding, twin._text, twin._free, twin._stream

    def forced(self) -> list[int]:
        """As `Constraint.forced`, where it holds."""
        tokens = self._holding.forced() if self._holding is not None else []
        for token in tokens:
            self._text += self._stream.push(token)
        self._let_go()
        return tokens

    @property
    def accepting(self) -> bool:
        """The answer may end here."""
        return self._holding is None or self._holding.accepting

    def fresh(self) -> "Lazy":
        """Another that stands at the beginning."""
        return Lazy(self._constraint, self._triggers, self._tokenizer, self._shown)
