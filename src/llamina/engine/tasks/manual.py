"""Hand-stepping: a sequence whose tokens the caller chooses, and which gives logits."""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np

from llamina.engine.cancellation import remember
from llamina.engine.request import Request
from llamina.engine.sequence import Sequence, Times
from llamina.engine.tasks.pooling import Array
from llamina.engine.tasks.scoring import Scales
from llamina.errors import RequestError, check_whole

if TYPE_CHECKING:
    from llamina.engine.core import Core
    from llamina.engine.engine import Engine


class ManualSequence:
    """Tokens, and what is computed of them. `forward` appends tokens and returns their logits.

    Requests may run beside it, in the same steps. Between two calls it keeps its pages of the KV cache, and one of the
    engine's `max_sequences` places, unless others need them: then its tokens are computed again. It is for one thread
    at a time.
    """

    def __init__(self, engine: "Engine", adapters: Scales, cache_salt: str) -> None:
        if not engine.runner.model.causal:
            raise RequestError("the model reads its tokens both ways: ask for the logits of all of them (`logits`)")
        self._engine = engine
        self._adapters, self._cache_salt = dict(adapters), cache_salt
        self._tokens: list[int] = []
        self._sequence: Sequence | None = None  # what the engine has of the tokens
        self._closed = False

    @property
    def tokens(self) -> list[int]:
        """All tokens so far."""
        return list(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def forward(self, tokens: str | Iterable[int]) -> Array:
        """Append tokens, or a text; the logits after each of them, [tokens, vocab]: the last row tells what comes next.

        The first text gets the tokens in front that the model expects. Raises ContextTooLong, RequestError or another
        LlaminaError, and has then the tokens that it had before.
        """
        more = self._encoded(tokens)
        known = [*self._tokens, *more]
        reads = range(len(self._tokens), len(known))
        request = Request(known, reads=reads, adapters=self._adapters, cache_salt=self._cache_salt)
        sequence = self._begin(request)
        try:
            self._engine.stepper.wait(lambda: sequence.done)
        except BaseException:
            self._engine.cancel(sequence)
            raise
        if sequence.finish_reason != "stop":
            raise sequence.error or RequestError("the sequence was cancelled: call forward again")
        self._sequence, self._tokens = sequence, known
        return np.concatenate(sequence.rows)

    def _encoded(self, tokens: str | Iterable[int]) -> list[int]:
        self._check_open()
        first = not self._tokens
        if isinstance(tokens, str):
            tokenizer = self._engine.tokenizer
            found = tokenizer.encode(tokens, add_special=first, parse_special=True, continued=not first)
        else:
            found = self._engine.encode(list(tokens))
        if not found:
            raise RequestError("tokens is empty: give at least one token", "tokens")
        return found

    def _begin(self, request: Request) -> Sequence:
        """Go on with what the engine has, or from the beginning; until that is done, it has nothing for others."""
        core = self._engine.core
        prepared, sequence = core.prepare(request), self._sequence
        self._sequence = None
        if sequence is None:
            prepared.keeps_pages = True
            self._engine.enqueue([prepared])
            return prepared
        remember(lambda: self._engine.stepper.post(core.cancel, sequence))
        self._engine.stepper.call(_go_on, core, sequence, request)
        return sequence

    def fork(self) -> "ManualSequence":
        """Another with the same tokens; they share pages until they differ."""
        self._check_open()
        twin = ManualSequence(self._engine, self._adapters, self._cache_salt)
        twin._tokens = list(self._tokens)
        if self._sequence is not None:
            twin._sequence = self._engine.stepper.call(_fork, self._engine.core, self._sequence)
        return twin

    def rewind(self, n: int) -> None:
        """Take the last n tokens back. Raises RequestError if there are not as many.

        Recurrent states do not go back: models that have them compute the tokens before again.
        """
        self._check_open()
        check_whole("n", n, 0, len(self._tokens))
        if n == 0:
            return
        del self._tokens[len(self._tokens) - n :]
        if self._sequence is not None:
            self._engine.stepper.call(_rewind, self._engine.core, self._sequence, len(self._tokens))

    def close(self) -> None:
        """Give its pages back; it cannot be used afterwards."""
        self._closed = True
        if self._sequence is not None:
            self._engine.stepper.post(self._engine.core.parking.end, self._sequence)
            self._sequence = None

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("the sequence is closed: make another with engine.sequence()")
        self._engine.runner.check_open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tokens{', closed' if self._closed else ''}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a sequence cannot be copied or pickled: use fork(), or engine.snapshot of a request")


def _go_on(core: "Core", sequence: Sequence, request: Request) -> None:
    """Let a sequence that rests compute the tokens of a longer request; between two steps."""
    core.settle()
    lease, computed, adapters = core.parking.take(sequence), sequence.computed, sequence.adapter_key
    sequence.request, sequence.known, sequence.rows = request, list(request.prompt), []
    sequence.finish_reason, sequence.done, sequence.times = None, False, Times()
    try:
        core.join(sequence)
    except BaseException:
        sequence.finish_reason, sequence.done = "error", True
        if lease is not None:
            core.pages.release(lease)
        raise
    if lease is not None and adapters != sequence.adapter_key:  # others have their names by now
        core.pages.release(lease)
        lease = None
    core.place(sequence, lease, computed)


def _fork(core: "Core", sequence: Sequence) -> Sequence | None:
    """Another that rests with the same pages; None if there are none, or no place for one more."""
    core.settle()
    lease = core.pages.fork(sequence.lease) if sequence.lease is not None else None
    if lease is None:
        return None
    twin = sequence.fork(sequence.request)
    twin.keeps_pages, twin.lease, twin.computed = True, lease, sequence.computed
    twin.applied, twin.adapter_key = sequence.applied, sequence.adapter_key
    twin.finish_reason, twin.done = "stop", True
    core.parking.park(twin)
    return twin


def _rewind(core: "Core", sequence: Sequence, tokens: int) -> None:
    """Keep what is computed of the first tokens, as far as that can be."""
    core.settle()
    del sequence.known[tokens:]
    if sequence.lease is None:
        return
    if not tokens or core.pages.recurrent or not core.pages.rewind(sequence.lease, tokens):
        core.parking.end(sequence)
    else:
        sequence.computed = tokens
