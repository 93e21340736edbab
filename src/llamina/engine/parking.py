"""Sequences that rest between two calls of their owner and keep their pages meanwhile (hand-stepping)."""

from llamina.cache import Lease, Pages
from llamina.engine.sequence import Sequence


class Parking:
    """Pages of resting sequences are taken from them where others need some, from who rested longest first.

    A sequence that has lost its pages is computed again when it goes on.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._resting: dict[Sequence, None] = {}  # in the order in which they came

    def park(self, sequence: Sequence) -> None:
        """Let it rest with the lease that it has."""
        self._resting[sequence] = None

    def take(self, sequence: Sequence) -> Lease | None:
        """The lease of one that goes on; None if its pages were taken from it."""
        self._resting.pop(sequence, None)
        lease, sequence.lease = sequence.lease, None
        return lease

    def end(self, sequence: Sequence, rests: bool = False) -> None:
        """A sequence is done: its pages go back, unless it `rests` and wants to keep them."""
        if sequence.lease is None:
            return
        if rests and sequence.keeps_pages:
            self.park(sequence)
        elif (lease := self.take(sequence)) is not None:
            self._pages.release(lease)

    def reclaim(self) -> bool:
        """Have the pages of one that rests given back; False if none does."""
        if not self._resting:
            return False
        self.end(next(iter(self._resting)))
        return True
