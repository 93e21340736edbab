"""Several answers to one prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamina.engine.generation import Generation
from llamina.engine.request import request_of
from llamina.engine.result import Completion
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


def begin(engine: "Engine", tokens: list[int], n: int, options: dict[str, Any]) -> list[Generation]:
    """n requests that draw each for itself; the first computes the prompt, the others wait for that."""
    check_count("n", n)
    first = request_of(tokens, **options)
    others = [request_of(tokens, **options, index=i, leader=first) for i in range(1, n)]
    return [Generation(engine, engine.submit(request)) for request in (first, *others)]


@dataclass(frozen=True, slots=True)
class Several:
    """How many answers are wanted and, if that is more, how many are made for the likeliest of them to be told."""

    n: int = 1
    best_of: int | None = None

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_count("best_of", self.count)
        if self.count < self.n:
            raise RequestError(f"best_of is {self.best_of} and n is {self.n}: at least n answers are needed", "best_of")

    @property
    def count(self) -> int:
        return self.n if self.best_of is None else self.best_of

    @property
    def _ranked(self) -> bool:
        return self.best_of is not None and self.best_of > 1

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Those of each request."""
        return options | ({"logprobs": options.get("logprobs") or 0} if self._ranked else {})

    def choose(self, found: Sequence[Completion], options: dict[str, Any]) -> Completion:
        """The first or the likeliest, with the other n - 1 as its alternatives; logprobs only if asked for."""
        if self._ranked:
            found = sorted(found, key=_likeliness, reverse=True)
        if options.get("logprobs") is None:
            found = [replace(completion, logprobs=None) for completion in found]
        return replace(found[0], alternatives=list(found[1 : self.n]))


def _likeliness(completion: Completion) -> float:
    """The mean log-probability of its tokens."""
    total = completion.cumulative_logprob
    return total / len(completion.tokens) if total is not None and completion.tokens else -math.inf


def check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{name} is {value!r}: a whole number of at least 1 is expected", name)
