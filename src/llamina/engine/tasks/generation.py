"""One sequence seen by its caller: an iterator of deltas."""

from collections import deque
from typing import TYPE_CHECKING, NoReturn, Self

from llamina.engine.delta import Delta
from llamina.engine.sequence import Sequence
from llamina.engine.tasks.completion import Completion, Usage, completion_of, usage_of

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


class Generation:
    """Iterate over it for deltas as they come; `result()` runs to the end and tells everything.

    Several may be read in turns, or by several threads: a step advances all sequences, and each keeps its deltas until
    they are read. Dropping it early cancels the sequence.
    """

    def __init__(self, engine: "Engine", sequence: Sequence) -> None:
        """Listens to the sequence from now on."""
        self.sequence = sequence
        self._engine = engine
        self._deltas: deque[Delta] = deque()
        self._stopped = False
        sequence.listeners.append(self._deltas.append)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        """The next delta with tokens or text in it; the last has a finish reason. Raises what ended the sequence."""
        while True:
            self._engine.stepper.wait(self._ready)
            if not self._deltas and self._stopped:
                self._engine.cancel(self.sequence)  # tells a last delta, if there was none
            if not self._deltas:
                raise StopIteration
            delta = self._deltas.popleft()
            if delta.finish_reason is not None and self.sequence.error is not None:
                raise self.sequence.error
            if delta.tokens or delta.text or delta.finish_reason:
                return delta

    def _ready(self) -> bool:
        return bool(self._deltas) or self._stopped or self.sequence.done

    def stop(self) -> None:
        """End after the step under way; may be called from a signal handler or another thread."""
        self._stopped = True

    def close(self) -> None:
        """Stop here: nothing more is computed for it, its pages are free, and there are no more deltas."""
        self._engine.cancel(self.sequence)
        self._stopped = True
        self._deltas.clear()

    def __del__(self) -> None:
        self._engine.stepper.post(self._engine.core.cancel, self.sequence)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a generation cannot be copied or pickled: take its result(), or engine.snapshot(sequence)")

    def result(self) -> Completion:
        """Everything, after running what is left of it. Raises what ended the sequence, if it failed."""
        self._engine.stepper.wait(lambda: self._stopped or self.sequence.done)  # one wait for all that is left
        for _ in self:
            pass
        return completion_of(self.sequence)

    @property
    def usage(self) -> Usage:
        return usage_of(self.sequence)
