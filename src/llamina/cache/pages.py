"""Pages of keys and values, and slots of recurrent states, leased to sequences. Integers only, no arrays."""

from dataclasses import dataclass, field

from llamina.errors import CapacityError
from llamina.ops.batch import PAGE


@dataclass(slots=True, eq=False)
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
        self._leases: dict[int, Lease] = {}  # by slot

    @property
    def free(self) -> int:
        return len(self._free)

    def holds(self, tokens: int) -> bool:
        """Whether a sequence of so many tokens would fit, had it all pages for itself."""
        return tokens <= self.total * PAGE

    def admit(self) -> Lease | None:
        """A lease without pages yet, or None while all slots are taken."""
        if not self._slots:
            return None
        lease = Lease(self._slots.pop())
        self._leases[lease.slot] = lease
        return lease

    def extend(self, lease: Lease, tokens: int) -> bool:
        """Make room for `tokens` tokens in all; False, and nothing changed, if the pool is exhausted."""
        self._check(lease)
        wanted = -(-tokens // PAGE) - len(lease.pages)
        if wanted > len(self._free):
            return False
        lease.pages.extend(self._free.pop() for _ in range(wanted))
        return True

    def release(self, lease: Lease) -> None:
        """Give everything back; the lease must not be used afterwards."""
        self._check(lease)
        self._free.extend(reversed(lease.pages))
        self._slots.append(lease.slot)
        lease.pages.clear()
        del self._leases[lease.slot]

    def _check(self, lease: Lease) -> None:
        if self._leases.get(lease.slot) is not lease:
            raise CapacityError(f"the lease of slot {lease.slot} was released before: admit a new one")
