"""Pages of keys and values, and slots of recurrent states, leased to sequences. Integers only: no arrays here."""

from dataclasses import dataclass, field

from ..errors import CapacityError
from ..ops.batch import PAGE


@dataclass(slots=True)
class Lease:
    """The pages of one sequence in order, and its slot."""

    slot: int
    pages: list[int] = field(default_factory=list)


class Pages:
    """A pool. Every page and slot is either free or in exactly one lease."""

    def __init__(self, pages: int, slots: int) -> None:
        self.total = pages
        self._free = list(range(pages - 1, -1, -1))
        self._slots = list(range(slots - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def admit(self) -> Lease | None:
        """A lease without pages yet, or None while all slots are taken."""
        return Lease(self._slots.pop()) if self._slots else None

    def extend(self, lease: Lease, tokens: int) -> bool:
        """Make room for a sequence of `tokens` tokens; False, and nothing changed, if the pool is exhausted."""
        wanted = -(-tokens // PAGE) - len(lease.pages)
        if wanted > len(self._free):
            return False
        lease.pages.extend(self._free.pop() for _ in range(wanted))
        return True

    def release(self, lease: Lease) -> None:
        """Give everything back; the lease must not be used afterwards."""
        if lease.slot in self._slots:
            raise CapacityError(f"slot {lease.slot} was released twice")
        self._free.extend(reversed(lease.pages))
        self._slots.append(lease.slot)
        lease.pages.clear()
