"""A request on its way: how far it is computed, what was generated, why it ended."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import Choice
from llamina.cache import Lease
from llamina.engine.delta import Delta, FinishReason
from llamina.engine.embedded import Layout
from llamina.engine.logprobs import Logprobs
from llamina.engine.output import Output
from llamina.engine.request import Request
from llamina.engine.speculation.drafting import Drafting
from llamina.errors import InvalidGrammar
from llamina.ops.batch import Applied
from llamina.sampling import Sampler, logprob_of

Listener = Callable[[Delta], None]
Sink = Callable[[Any, int, int], Any]  # (outputs of a step on a device, first row, last row + 1) → what is kept of them
_ids = count()


@dataclass(slots=True)
class Times:
    """When things happened, by `time.perf_counter`."""

    submitted: float = 0.0
    started: float | None = None  # first step
    first: float | None = None  # token
    last: float | None = None


class Sequence:
    """`known` are the tokens so far, the first `computed` of them in the KV cache: work is the difference."""

    def __init__(self, request: Request, leader: "Sequence | None" = None) -> None:
        """`leader` computes the same prompt; this one waits for that and reuses its pages."""
        self.request = request
        self.leader = leader
        self.id = next(_ids)
        self.rank = self.id  # the order of service, smaller first
        self.known: list[int] = list(request.prompt)
        self.computed = 0  # or being computed by a step that was launched
        self.ahead = 0  # tokens that steps which were launched are sampling: they come after the known ones
        self.lease: Lease | None = None
        self.cached: int | None = None  # tokens of the prompt that came from the prefix cache, once it has run
        self.dropped = 0  # old tokens that are not known any more
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None  # why it ended, if it failed
        ends = request.stop_tokens, request.include_stop, request.min_tokens
        self.output = Output(request.stop, request.markers, *ends)
        self.logprobs = Logprobs(request.prompt, request.logprobs, request.prompt_logprobs)
        self.rows: list[Any] = []  # outputs that are read: arrays, or what a sink has made of them
        self.sampler: Sampler | None = None
        self.applied: tuple[Applied, ...] = ()  # its adapters, once the engine has found them
        self.adapter_key: tuple[Hashable, ...] = ()  # which they are, by their contents
        self.layout = Layout(request.embedded) if request.embedded else None  # of rows in the place of tokens
        self.reasoned = False  # its reasoning is over, or was ended
        self.drafting = Drafting()
        self.times = Times()
        self.listeners: list[Listener] = []  # told of every delta, in order
        self.queued = False  # it was given to the scheduler
        self.sink: Sink | None = None  # takes outputs that are read from where a device has them
        self.keeps_pages = False  # when it is done, for its owner to go on with
        self.done = False  # all listeners were told of the last delta

    @property
    def generated(self) -> list[int]:
        return self.output.tokens

    @property
    def text(self) -> str:
        """The text that is certain so far."""
        return "".join(self.output.pieces)

    @property
    def length(self) -> int:
        """Its tokens, those included that are being sampled."""
        return len(self.known) + self.ahead

    @property
    def pending(self) -> int:
        """Tokens that are not in the KV cache yet."""
        return self.length - self.computed

    @property
    def held(self) -> bool:
        """It would compute what its leader is computing."""
        leader = self.leader
        return leader is not None and leader.finish_reason is None and not leader.generated

    @property
    def wanted(self) -> range:
        """The positions whose outputs are wanted: those to be read or scored, else the last, to sample from."""
        if self.request.reads is not None:
            return self.request.reads
        first = len(self.logprobs.prompt) if self.logprobs.wants_prompt else self.length
        return range(first - 1, self.length)

    @property
    def scope(self) -> Hashable | None:
        """Sequences of one scope may share prefixes; None: nothing is shared."""
        return (self.request.cache_salt, *self.adapter_key) if self.request.cache_prompt else None

    @property
    def complete(self) -> bool:
        """Its grammar allows no more tokens."""
        return self.sampler is not None and self.sampler.done

    def read(self, position: int, rows: npt.NDArray[np.float32]) -> None:
        """Keep the outputs of the positions from this one on."""
        if self.request.reading == "logprobs":
            pairs = zip(rows, self.known[position + 1 :], strict=False)
            rows = np.array([logprob_of(row, token, 0).logprob for row, token in pairs], np.float32)
        self.rows.append(rows.copy() if isinstance(rows, np.ndarray) else rows)

    def sample(self, logits: npt.NDArray[np.float32]) -> list[int]:
        """The next token, and those that the grammar leaves no choice about; `logits` is overwritten."""
        assert self.sampler is not None
        if tokens := self._close_reasoning():
            return tokens
        before = logits if self.request.logprobs is None else logits.copy()
        known = self.known if self.layout is None else [token for token in self.known if token >= 0]
        token = self.sampler.sample(logits, known, len(self.known) + self.dropped)
        self.logprobs.add(before, token)
        return [token, *(self.sampler.forced() if self.request.logprobs is None else [])]

    def _close_reasoning(self) -> list[int]:
        """The tokens that end reasoning which is as long as it may be, in the place of those that would be sampled."""
        limit = self.request.reasoning_limit
        if limit is None or self.reasoned or len(self.generated) < limit.tokens:
            return []
        text = self.text.lstrip()
        if len(text) < len(limit.opening) and limit.opening.startswith(text):
            return []  # it may be about to begin
        self.reasoned = True
        tokens = list(limit.closing)
        if not text.startswith(limit.opening) or any(end in text for end in limit.ends) or not self._allows(tokens):
            return []
        self.logprobs.rewind(0, len(tokens))
        return tokens

    def _allows(self, tokens: list[int]) -> bool:
        """Whether the grammar, which goes on after these tokens then, has a place for them."""
        constraint = self.sampler.constraint if self.sampler is not None else None
        try:
            if constraint is not None:
                constraint.restart([*self.generated, *tokens])
        except InvalidGrammar:
            return False
        return True

    def choice(self) -> Choice:
        """How a backend chooses the next token after all that are known or being sampled."""
        assert self.sampler is not None
        return self.sampler.choice(self.known, self.length + self.dropped)

    def accept(self, token: int) -> list[int]:
        """The token that a backend has chosen, and those that the grammar leaves no choice about."""
        assert self.sampler is not None
        self.ahead = max(0, self.ahead - 1)
        self.sampler.accept(token)
        return [token, *self.sampler.forced()]

    def fork(self, request: Request) -> "Sequence":
        """Another that knows and has generated the same, and goes on as `request` says."""
        twin = Sequence(request, self.leader)
        twin.known, twin.cached, twin.dropped = list(self.known), self.cached, self.dropped
        twin.output.tokens = list(self.output.tokens)
        twin.logprobs.tokens, twin.logprobs.prompt = list(self.logprobs.tokens), list(self.logprobs.prompt)
        return twin

    def shift(self, room: int, keep: int) -> None:
        """Drop old tokens after the first `keep`, half of them at a time, until the known ones are within `room`."""
        while len(self.known) > room:
            half = (len(self.known) - keep) // 2
            del self.known[keep : keep + half]
            self.dropped += half

    def delta(self, tokens: tuple[int, ...] = (), text: str = "", computed: int | None = None) -> Delta:
        """What has just happened to it; `tokens` are the last that were generated.

        `computed` is how far its prompt is computed, where a step behind this one computes more of it.
        """
        scored = self.logprobs.tokens
        logprobs = tuple(scored[len(scored) - len(tokens) :]) if self.request.logprobs is not None else None
        done = self.computed if computed is None else computed
        if self.generated:  # the last token is computed by the next step, which may be under way
            done = min(done, len(self.known) - 1)
        return Delta(self.id, tokens, text, logprobs, self.finish_reason, done, len(self.request.prompt))

    def told(self, delta: Delta) -> None:
        """All listeners have been told of a delta. After the last one none is kept: they may refer to the sequence."""
        self.done = self.finish_reason is not None
        if delta.finish_reason is not None:
            self.listeners.clear()
