"""The pool of pages: every page and slot is free or in exactly one lease, whatever happens."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from llamina.cache import Lease, Pages
from llamina.errors import CapacityError
from llamina.ops.batch import PAGE

TOTAL, SLOTS = 12, 4


class Pool(RuleBasedStateMachine):
    """Random admissions, extensions and releases, against a model of what each lease should hold."""

    leases: Bundle[Lease] = Bundle("leases")
    spent: Bundle[Lease] = Bundle("spent")

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages(TOTAL, SLOTS)
        self.live: list[Lease] = []

    @rule(target=leases)
    def admit(self) -> object:
        lease = self.pages.admit()
        assert (lease is None) == (len(self.live) == SLOTS)
        if lease is None:
            return multiple()  # nothing for the bundle
        assert lease.pages == []
        self.live.append(lease)
        return lease

    @rule(lease=leases, tokens=st.integers(0, (TOTAL + 2) * PAGE))
    def extend(self, lease: Lease, tokens: int) -> None:
        before, free = list(lease.pages), self.pages.free
        wanted = max(-(-tokens // PAGE), len(before))
        fits = self.pages.extend(lease, tokens)
        assert fits == (wanted - len(before) <= free)
        assert lease.pages[: len(before)] == before, "pages that hold tokens stay where they are"
        assert len(lease.pages) == (wanted if fits else len(before))

    @rule(target=spent, lease=consumes(leases))
    def release(self, lease: Lease) -> Lease:
        self.pages.release(lease)
        self.live.remove(lease)
        return lease

    @rule(lease=spent)
    def a_released_lease_is_dead(self, lease: Lease) -> None:
        with pytest.raises(CapacityError):
            self.pages.release(lease)
        with pytest.raises(CapacityError):
            self.pages.extend(lease, PAGE)

    @invariant()
    def nothing_is_lost_or_shared(self) -> None:
        held = [page for lease in self.live for page in lease.pages]
        assert len(held) == len(set(held))
        assert set(held) <= set(range(TOTAL))
        assert len(held) + self.pages.free == self.pages.total == TOTAL
        slots = [lease.slot for lease in self.live]
        assert len(slots) == len(set(slots))
        assert set(slots) <= set(range(SLOTS))


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_released_twice() -> None:
    pages = Pages(2, 1)
    lease = pages.admit()
    assert lease is not None
    pages.release(lease)
    with pytest.raises(CapacityError, match="released before"):
        pages.release(lease)


def test_a_stale_lease_cannot_free_anothers_slot() -> None:
    pages = Pages(2, 1)
    stale = pages.admit()
    assert stale is not None
    pages.release(stale)
    heir = pages.admit()
    assert heir is not None and heir.slot == stale.slot
    with pytest.raises(CapacityError, match="released before"):
        pages.release(stale)
    assert pages.admit() is None, "the slot is still the heir's"


def test_a_failed_extension_changes_nothing() -> None:
    pages = Pages(3, 2)
    first, second = pages.admit(), pages.admit()
    assert first is not None and second is not None
    assert pages.extend(first, 2 * PAGE)
    assert not pages.extend(second, 2 * PAGE)
    assert second.pages == [] and pages.free == 1
    assert pages.extend(second, 1) and pages.free == 0


def test_no_slot_no_lease() -> None:
    pages = Pages(8, 2)
    assert pages.admit() and pages.admit()
    assert pages.admit() is None
