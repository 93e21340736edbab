"""Several answers to one prompt."""

import math
from dataclasses import replace
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


def answer(engine: "Engine", tokens: list[int], n: int, best_of: int | None, options: dict[str, Any]) -> Completion:
    """The first or, with `best_of`, the likeliest of several answers, with the other n - 1 as its alternatives."""
    count = n if best_of is None else best_of
    check_count("n", n)
    check_count("best_of", count)
    if count < n:
        raise RequestError(f"best_of is {best_of} and n is {n}: at least n answers are needed", "best_of")
    ranked = best_of is not None and best_of > 1
    asked = options | ({"logprobs": options.get("logprobs") or 0} if ranked else {})
    found = [generation.result() for generation in begin(engine, tokens, count, asked)]
    if ranked:
        found.sort(key=_likeliness, reverse=True)
    if options.get("logprobs") is None:
        found = [replace(completion, logprobs=None) for completion in found]
    return replace(found[0], alternatives=found[1:n])


def _likeliness(completion: Completion) -> float:
    """The mean log-probability of its tokens."""
    total = completion.cumulative_logprob
    return total / len(completion.tokens) if total is not None and completion.tokens else -math.inf


def check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{name} is {value!r}: a whole number of at least 1 is expected", name)
