"""Beam search: the likeliest answers as a whole, not token by token.

Beams are ordinary requests that share the pages of what they have in common. Each takes its likeliest token; whoever
should have taken another is rewound by it, and where two beams come from one, it is forked.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamina.engine.request import FinishReason, Request, request_of
from llamina.engine.result import Completion, Usage
from llamina.engine.several import check_count
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine.engine import Engine

SEARCH = ("beam_width", "length_penalty", "early_stopping", "max_tokens")
OPTIONS = {"priority", "cache_prompt", "cache_salt"}  # what a beam's request may be told; it chooses by itself


@dataclass(frozen=True, slots=True)
class Beam:
    """Tokens with the sum of their log-probabilities, and the request that goes on with them."""

    request: Request
    tokens: tuple[int, ...] = ()
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """How to search. An answer's score is the mean of its log-probabilities, or that with another power of its length.

    With `early_stopping` the search ends with `beam_width` finished answers; without, when no beam can become better.
    """

    beam_width: int
    length_penalty: float = 1.0
    early_stopping: bool = True
    max_tokens: int | None = 256
    n: int = 1

    def __post_init__(self) -> None:
        check_count("beam_width", self.beam_width)
        check_count("n", self.n)
        if self.n > self.beam_width:
            message = f"n is {self.n} and beam_width {self.beam_width}: a search finds as many answers as it has beams"
            raise RequestError(message, "n")
        if not isinstance(self.length_penalty, int | float) or isinstance(self.length_penalty, bool):
            raise RequestError(f"length_penalty is {self.length_penalty!r}: a number is expected", "length_penalty")
        if not isinstance(self.early_stopping, bool):
            raise RequestError(f"early_stopping is {self.early_stopping!r}: a truth is expected", "early_stopping")

    def begin(self, engine: "Engine", prompt: Sequence[int], options: dict[str, Any]) -> "Search":
        """Submit the first beam."""
        if refused := sorted(options.keys() - OPTIONS):
            message = f"{', '.join(refused)} cannot be given with beam_width: beams choose by themselves"
            raise RequestError(message, refused[0])
        if self.beam_width > engine.budget.sequences:
            most = engine.budget.sequences
            raise RequestError(
                f"beam_width is {self.beam_width}: the engine runs {most} sequences at once", "beam_width"
            )
        return Search(self, engine, list(prompt), options)

    def score(self, total: float, length: int) -> float:
        return float(total / max(length, 1) ** self.length_penalty)


class Search:
    """A search that goes on whenever it is polled and all its beams have their next token."""

    def __init__(self, search: BeamSearch, engine: "Engine", prompt: list[int], options: dict[str, Any]) -> None:
        self._search, self._engine, self._prompt = search, engine, prompt
        likeliest = search.beam_width + len(engine.tokenizer.eog)  # enough to go on with, should all ends be among them
        request = request_of(
            prompt, max_tokens=None, temperature=0, ignore_eos=True, logprobs=likeliest, speculate="off", **options
        )
        check = request_of(prompt, max_tokens=search.max_tokens)
        self._most = min(check.max_tokens or engine.limits.room, engine.limits.room + 1 - len(prompt))
        self._start = self._first = time.perf_counter()
        self._requests = [engine.submit(request)]
        self._beams = [Beam(request)]
        self._length = 0
        self._done: list[tuple[float, Beam, FinishReason]] = []

    def run(self) -> Completion:
        """Step until it is done."""
        try:
            while (found := self.poll()) is None:
                self._engine.step()
            return found
        finally:
            self.close()

    def poll(self) -> Completion | None:
        """The best answer, with the next n - 1 as its alternatives; None while there are steps to be made."""
        if self._wants_tokens:
            if not self._ready():
                return None
            self._length += 1
            self._choose(self._length)
        if self._wants_tokens:
            return None
        for beam in self._beams:
            self._finish(beam, self._length, "length")
        return self._completion()

    def close(self) -> None:
        """Nothing more is computed for it."""
        for request in self._requests:
            self._engine.cancel(request)

    @property
    def _wants_tokens(self) -> bool:
        return bool(self._beams) and self._length < self._most

    def _ready(self) -> bool:
        """Whether every beam has its next token; some may be ahead of others that wait for pages."""
        for request in (beam.request for beam in self._beams):
            if request.error is not None:
                raise request.error
            if request.finish_reason == "cancelled":
                raise RequestError("the search was cancelled: ask again")
            assert request.finish_reason is None or len(request.generated) > self._length, "its room was counted wrong"
        ready = all(len(beam.request.generated) > self._length for beam in self._beams)
        if ready and not self._length:
            self._first = time.perf_counter()
        return ready

    def _choose(self, length: int) -> None:
        """The best ways to go on from all beams; those that end are put aside."""
        found = [
            (beam.total + logprob, at, token)
            for at, beam in enumerate(self._beams)
            for token, logprob in _top(beam, length)
        ]
        found.sort(key=lambda way: (-way[0], way[1]))
        chosen: list[tuple[int, Beam]] = []
        for total, at, token in found:
            parent = self._beams[at]
            beam = Beam(parent.request, (*parent.tokens, token), total)
            if token in self._engine.tokenizer.eog:
                self._finish(beam, length, "stop")
            else:
                chosen.append((at, beam))
            if len(chosen) == self._search.beam_width:
                break
        over = self._over(chosen, length)
        self._beams = [] if over else [beam for _, beam in chosen]
        if not over and length < self._most:
            self._beams = self._branch(chosen, length)

    def _over(self, chosen: list[tuple[int, Beam]], length: int) -> bool:
        """Enough answers are finished, and none of the beams could become better than them."""
        search = self._search
        if len(self._done) < search.beam_width or search.early_stopping:
            return len(self._done) >= search.beam_width
        longest = self._most if search.length_penalty > 0 else length + 1
        return all(search.score(beam.total, longest) <= self._done[-1][0] for _, beam in chosen)

    def _finish(self, beam: Beam, length: int, reason: FinishReason) -> None:
        self._done.append((self._search.score(beam.total, length), beam, reason))
        self._done.sort(key=lambda done: -done[0])
        del self._done[self._search.beam_width :]

    def _branch(self, chosen: list[tuple[int, Beam]], length: int) -> list[Beam]:
        """A request for each chosen way: the beam's own for the first that comes from it, forks for the others."""
        engine, found, taken = self._engine, [], set()
        for _, beam in chosen:
            if (ahead := len(beam.request.generated) - length) > 0:
                engine.rewind(beam.request, ahead)
        for at, beam in chosen:
            found.append(replace(beam, request=engine.fork(beam.request)) if at in taken else beam)
            taken.add(at)
        for beam in found:
            if beam.request.generated[-1] != beam.tokens[-1]:
                engine.rewind(beam.request, 1, beam.tokens[-1:])
        live = [beam.request for beam in found]
        for request in self._requests:
            if request not in live:
                engine.cancel(request)
        self._requests = live
        return found

    def _completion(self) -> Completion:
        now = time.perf_counter()
        answers = []
        for _, beam, reason in self._done[: self._search.n]:
            tokens = list(beam.tokens[:-1] if reason == "stop" else beam.tokens)
            text = self._engine.tokenizer.decode(tokens, continued=True)
            times = self._first - self._start, now - self._first
            usage = Usage(len(self._prompt), len(beam.tokens), *times, beam.request.cached or 0)
            answers.append(Completion(text, tokens, reason, usage))
        return replace(answers[0], alternatives=answers[1:])


def _top(beam: Beam, length: int) -> tuple[tuple[int, float], ...]:
    """The likeliest tokens after the beam's, of which `length` - 1 were before."""
    found = beam.request.scores.tokens[length - 1]
    assert found is not None
    return found.top
