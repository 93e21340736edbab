"""Several answers to one prompt, which is computed once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamina.engine.request import request_of
from llamina.engine.sequence import Listener
from llamina.engine.sequence import Sequence as EngineSequence
from llamina.engine.tasks.completion import Completion
from llamina.engine.tasks.generation import Generation
from llamina.errors import RequestError, check_whole

if TYPE_CHECKING:
    from llamina.engine.engine import Engine
    from llamina.engine.tasks.scoring import Text


AHEAD = 4  # times as many sequences are submitted as can run, where many are asked for at once


def answer(
    engine: "Engine", prompts: Sequence["Text"], asked: "NBest", options: dict[str, Any], listener: Listener | None
) -> list[Completion]:
    """The answers to each prompt. More are begun while half of those that were begun are still to come."""
    ahead, answers = max(1, AHEAD * engine.runner.budget.sequences // asked.count), []
    under_way: list[list[Generation]] = []
    for i in range(len(prompts)):
        if len(under_way) - i <= ahead // 2:
            more = [engine.encode(text) for text in prompts[len(under_way) : i + ahead]]
            under_way += begin(engine, more, asked.count, asked.options(options), listener)
        answers.append(asked.choose([generation.result() for generation in under_way[i]], options))
        under_way[i] = []
    return answers


def begin(
    engine: "Engine", prompts: list[list[int]], n: int, options: dict[str, Any], on_delta: Listener | None = None
) -> list[list[Generation]]:
    """For each prompt n answers, with random streams of their own; the first computes the prompt, the others wait."""
    check_whole("n", n, 1)
    sequences = []
    for tokens in prompts:
        leader: EngineSequence | None = None
        for index in range(n):
            request = request_of(tokens, options | ({"index": index} if index else {}), engine.runner.sampling)
            sequences.append(engine.core.prepare(request, leader))
            leader = leader or sequences[-1]
    generations = engine.start_all(sequences, on_delta)
    return [generations[at : at + n] for at in range(0, len(generations), n)]


@dataclass(frozen=True, slots=True)
class NBest:
    """How many answers are wanted and, if that is more, how many are generated for the likeliest of them to be told."""

    n: int = 1
    best_of: int | None = None

    def __post_init__(self) -> None:
        check_whole("n", self.n, 1)
        check_whole("best_of", self.count, 1)
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

    def choose(self, answers: Sequence[Completion], options: dict[str, Any]) -> Completion:
        """The first or the likeliest, with the other n - 1 as its alternatives; logprobs only if asked for."""
        if self._ranked:
            answers = sorted(answers, key=_mean_logprob, reverse=True)
        if options.get("logprobs") is None:
            answers = [replace(completion, logprobs=None) for completion in answers]
        return replace(answers[0], alternatives=list(answers[1 : self.n]))


def _mean_logprob(completion: Completion) -> float:
    total = completion.cumulative_logprob
    return total / len(completion.tokens) if total is not None and completion.tokens else -math.inf
