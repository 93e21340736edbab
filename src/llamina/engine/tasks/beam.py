"""Beam search: the likeliest answers as a whole, not token by token.

Beams are ordinary sequences that share the pages of what they have in common. Each takes its likeliest token; one that
should have taken another is rewound by it, and where two beams come from one, it is forked.
"""

import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llamina.engine.cancellation import remember
from llamina.engine.delta import FinishReason
from llamina.engine.request import request_of
from llamina.engine.sequence import Sequence
from llamina.engine.tasks.completion import Completion, Usage
from llamina.engine.tasks.fork import fork, rewind
from llamina.errors import RequestError, check_whole

if TYPE_CHECKING:
    from llamina.engine.engine import Engine

SEARCH = ("beam_width", "length_penalty", "early_stopping", "max_tokens")
OPTIONS = {"priority", "cache_prompt", "cache_salt", "adapters"}  # of a beam's request; it chooses by itself


@dataclass(frozen=True, slots=True)
class Beam:
    """Tokens with the sum of their log-probabilities, and the sequence that goes on with them."""

    sequence: Sequence
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
        check_whole("beam_width", self.beam_width, 1)
        check_whole("n", self.n, 1)
        if self.n > self.beam_width:
            message = f"n is {self.n} and beam_width {self.beam_width}: a search finds as many answers as it has beams"
            raise RequestError(message, "n")
        if not isinstance(self.length_penalty, int | float) or isinstance(self.length_penalty, bool):
            raise RequestError(f"length_penalty is {self.length_penalty!r}: it must be a number", "length_penalty")
        if not isinstance(self.early_stopping, bool):
            raise RequestError(f"early_stopping is {self.early_stopping!r}: it must be True or False", "early_stopping")

    def begin(self, engine: "Engine", prompt: list[int], options: dict[str, Any]) -> "Search":
        """Submit the first beam. Raises RequestError for options that beams cannot have."""
        if refused := sorted(options.keys() - OPTIONS):
            message = f"{', '.join(refused)} cannot be given with beam_width: beams choose by themselves"
            raise RequestError(message, refused[0])
        if self.beam_width > engine.runner.budget.sequences:
            most = engine.runner.budget.sequences
            raise RequestError(
                f"beam_width is {self.beam_width}: the engine runs {most} sequences at once", "beam_width"
            )
        return Search(self, engine, prompt, options)

    def score(self, total: float, length: int) -> float:
        return float(total / max(length, 1) ** self.length_penalty)


def search(engine: "Engine", tokens: list[int], n: int, best_of: int | None, options: dict[str, Any]) -> Completion:
    """The best answers that a beam search finds. Raises RequestError for options that beams cannot have."""
    given = {name: options.pop(name) for name in SEARCH if name in options}
    options |= {"best_of": best_of} if best_of is not None else {}
    found = BeamSearch(n=n, **given).begin(engine, tokens, options)
    remember(lambda: engine.stepper.post(found.cancel))
    try:
        engine.stepper.wait(found.future.done)
        return found.future.result()
    finally:
        engine.stepper.post(found.cancel)


class Search:
    """A search that goes on after each step in which all its beams got their next token; `future` is its result."""

    def __init__(self, search: BeamSearch, engine: "Engine", prompt: list[int], options: dict[str, Any]) -> None:
        self._search, self._core, self._prompt = search, engine.core, prompt
        self._stepper, self._tokenizer = engine.stepper, engine.tokenizer
        likeliest = search.beam_width + len(engine.tokenizer.eog)  # enough to go on with, should all ends be among them
        asked = {"temperature": 0, "ignore_eos": True, "logprobs": likeliest, "speculate": "off"}
        request = request_of(prompt, asked | options)
        limit = request_of(prompt, {"max_tokens": search.max_tokens}).max_tokens
        room = engine.core.limits.room
        self._most = min(limit or room, room + 1 - len(prompt))
        self._start = self._first = time.perf_counter()
        self._length = 0
        self._done: list[tuple[float, Beam, FinishReason]] = []
        self.future: Future[Completion] = Future()
        self._sequences = [engine.submit(request)]
        self._beams = [Beam(self._sequences[0])]
        engine.stepper.after_step.append(self._poll)

    def cancel(self) -> None:
        """Nothing more is computed for it; between two steps."""
        self._end(RequestError("the search was cancelled: ask again"))

    def _poll(self) -> None:
        """Go on as far as the steps so far allow; whoever made the last step calls it."""
        try:
            best = self._advance()
        except Exception as error:
            self._end(error)
        else:
            if best is not None:
                self._end(best)

    def _end(self, outcome: Completion | Exception) -> None:
        if self.future.done():
            return
        self._stepper.after_step.remove(self._poll)
        for sequence in self._sequences:
            self._core.cancel(sequence)
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)

    def _advance(self) -> Completion | None:
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

    @property
    def _wants_tokens(self) -> bool:
        return bool(self._beams) and self._length < self._most

    def _ready(self) -> bool:
        """Whether every beam has its next token; some may be ahead of others that wait for pages."""
        for sequence in (beam.sequence for beam in self._beams):
            if sequence.error is not None:
                raise sequence.error
            if sequence.finish_reason == "cancelled":
                raise RequestError("the search was cancelled: ask again")
            ended_early = sequence.finish_reason is not None and len(sequence.generated) <= self._length
            assert not ended_early, "its room was counted wrong"
        ready = all(len(beam.sequence.generated) > self._length for beam in self._beams)
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
            beam = Beam(parent.sequence, (*parent.tokens, token), total)
            if token in self._tokenizer.eog:
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
        """A sequence for each chosen way: the beam's own for the first that comes from it, forks for the others."""
        core, beams, taken = self._core, [], set()
        for _, beam in chosen:
            if (ahead := len(beam.sequence.generated) - length) > 0:
                rewind(core, beam.sequence, ahead, ())
        for at, beam in chosen:
            beams.append(replace(beam, sequence=fork(core, beam.sequence)) if at in taken else beam)
            taken.add(at)
        for beam in beams:
            if beam.sequence.generated[-1] != beam.tokens[-1]:
                rewind(core, beam.sequence, 1, beam.tokens[-1:])
        live = [beam.sequence for beam in beams]
        for sequence in self._sequences:
            if sequence not in live:
                core.cancel(sequence)
        self._sequences = live
        return beams

    def _completion(self) -> Completion:
        now = time.perf_counter()
        answers = []
        for score, beam, reason in self._done[: self._search.n]:
            tokens = list(beam.tokens[:-1] if reason == "stop" else beam.tokens)
            text = self._tokenizer.decode(tokens, continued=True)
            times = self._first - self._start, now - self._first
            usage = Usage(len(self._prompt), len(beam.tokens), *times, beam.sequence.cached or 0)
            answers.append(Completion(text, tokens, reason, usage, score=score, beam_logprob=beam.total))
        return replace(answers[0], alternatives=answers[1:])


def _top(beam: Beam, length: int) -> tuple[tuple[int, float], ...]:
    """The likeliest tokens after the beam's, of which `length` - 1 were before."""
    found = beam.sequence.logprobs.tokens[length - 1]
    assert found is not None
    return found.top
