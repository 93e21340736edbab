"""The pool: every lease finds exactly its own tokens, nothing is lost, whatever the order in which it happens.

The memory is played here: a page holds the tokens that were written to it, a slot the tokens that went into its state.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llamina.cache import Lease, Pages, WindowPool
from llamina.errors import CapacityError
from llamina.ops.batch import PAGE

TOTAL, SLOTS, CHECKPOINTS, PLACES = 10, 3, 3, 8
TEXTS = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=1, max_size=4 * PAGE)  # often the same beginnings
SCOPES = st.sampled_from([None, "a", "a", "b"])


@dataclass(eq=False)
class Sequence:
    """A sequence as the engine sees it."""

    lease: Lease
    known: list[int]
    computed: int


class Pool(RuleBasedStateMachine):
    """Random admissions, computations, forks, rewinds and releases over a played memory."""

    recurrent = False
    reach = 0

    def __init__(self) -> None:
        super().__init__()
        windows = WindowPool(PLACES, self.reach) if self.reach else None
        self.pages = Pages(TOTAL, SLOTS, CHECKPOINTS if self.recurrent else None, windows)
        self.memory = [[-1] * PAGE for _ in range(TOTAL)]
        self.seen = [[-1] * PAGE for _ in range(PLACES)]  # by windowed layers
        self.states: list[list[int]] = [[] for _ in range(SLOTS + CHECKPOINTS)]
        self.live: list[Sequence] = []

    def copy(self) -> None:
        arrays = {"page": self.memory, "window": self.seen, "slot": self.states}
        for unit, pairs in self.pages.take_copies().items():
            for source, target in pairs:
                arrays[unit][target] = list(arrays[unit][source])

    def pick(self, number: int) -> Sequence:
        return self.live[number % len(self.live)]

    @rule(tokens=TEXTS, scope=SCOPES, reuse=st.sampled_from([True, True, False]), promised=st.integers(0, 2))
    def admit(self, tokens: list[int], scope: str | None, reuse: bool, promised: int) -> None:
        free = self.pages.free
        lease = self.pages.admit(tokens, scope, reuse, promised)
        if lease is None:
            full = len(self.live) == SLOTS
            assert full or free - promised < -(-len(tokens) // PAGE)
            assert self.pages.free == free
            return
        assert 0 <= lease.found < len(tokens)
        assert not lease.found or (reuse and scope is not None)
        self.live.append(Sequence(lease, tokens, lease.found))

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 9), more=TEXTS)
    def compute(self, number: int, more: list[int]) -> None:
        s = self.pick(number)
        if s.computed == len(s.known):
            s.known += more
        before, free, room = list(s.lease.pages), self.pages.free, self.pages.windows.free
        stop = self.pages.stop(s.lease, s.computed, len(s.known), len(s.known))
        assert s.computed < stop <= len(s.known)
        if not self.pages.extend(s.lease, s.computed, stop):
            assert s.lease.pages == before and self.pages.free == free, "a failed extension changes nothing"
            assert -(-stop // PAGE) - len(before) + 1 > (min(free, room) if self.reach else free)
            return
        self.copy()
        self.write(s, stop)
        self.pages.keep(s.lease, s.known, s.computed)

    def write(self, s: Sequence, stop: int) -> None:
        slot = s.lease.slot
        self.states[slot] = [] if s.computed == 0 else self.states[slot]
        if self.recurrent:
            assert self.states[slot] == s.known[: s.computed], "the state from which it goes on"
        for at in range(s.computed, stop):
            page = s.lease.pages[at // PAGE]
            assert self.users(page) == 1, "nobody writes what others read"
            self.memory[page][at % PAGE] = s.known[at]
            if self.reach:
                self.seen[self.pages.windows[page]][at % PAGE] = s.known[at]
            self.states[slot].append(s.known[at])
        s.computed = stop

    def users(self, page: int) -> int:
        return sum(page in s.lease.pages for s in self.live)

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 9))
    def fork(self, number: int) -> None:
        s = self.pick(number)
        lease = self.pages.fork(s.lease)
        assert (lease is None) == (len(self.live) == SLOTS)
        if lease is not None:
            self.live.append(Sequence(lease, list(s.known), s.computed))

    @precondition(lambda self: self.live and not self.recurrent)
    @rule(number=st.integers(0, 9), n=st.integers(0, 3 * PAGE), more=TEXTS)
    def rewind(self, number: int, n: int, more: list[int]) -> None:
        s = self.pick(number)
        computed, before = max(0, s.computed - n), list(s.lease.pages)
        if not self.pages.rewind(s.lease, computed):
            assert self.reach and s.lease.pages == before
            return
        s.computed = computed
        s.known[s.computed :] = more
        assert len(s.lease.pages) == -(-s.computed // PAGE)

    @precondition(lambda self: self.live)
    @rule(number=st.integers(0, 9))
    def release(self, number: int) -> None:
        s = self.pick(number)
        self.live.remove(s)
        self.pages.release(s.lease)
        for call in (self.pages.release, self.pages.fork, lambda lease: self.pages.extend(lease, 0, PAGE)):
            with pytest.raises(CapacityError, match="released before"):
                call(s.lease)

    @rule()
    def forget(self) -> None:
        self.pages.forget()
        assert self.pages.kept == 0

    @invariant()
    def everyone_finds_their_tokens(self) -> None:
        self.copy()
        for s in self.live:
            found = [token for page in s.lease.pages for token in self.memory[page]]
            assert found[: s.computed] == s.known[: s.computed]
            if self.recurrent and s.computed:
                assert self.states[s.lease.slot] == s.known[: s.computed]
            if self.reach:
                first = max(0, s.computed - self.reach + 1)
                kept = {at: self.seen[self.pages.windows[s.lease.pages[at // PAGE]]] for at in range(first, s.computed)}
                assert [row[at % PAGE] for at, row in kept.items()] == s.known[first : s.computed]

    @invariant()
    def nothing_is_lost(self) -> None:
        held = {page for s in self.live for page in s.lease.pages}
        assert held <= set(range(TOTAL))
        assert len(held) + self.pages.free == self.pages.total == TOTAL
        assert 0 <= self.pages.kept <= self.pages.free
        seen = {page for s in self.live for page in s.lease.pages[s.lease.window_start :]}
        assert len(seen) + self.pages.windows.free == self.pages.windows.total
        assert 0 <= self.pages.windows.kept <= self.pages.windows.free
        slots = [s.lease.slot for s in self.live]
        assert len(slots) == len(set(slots)) and set(slots) <= set(range(SLOTS))

    def teardown(self) -> None:
        for s in self.live:
            self.pages.release(s.lease)
        self.pages.forget()
        assert (self.pages.free, self.pages.kept) == (TOTAL, 0)
        assert (self.pages.windows.free, self.pages.windows.kept) == (self.pages.windows.total, 0)
        assert self.pages.admit([0] * TOTAL * PAGE, "a") is not None


class RecurrentPool(Pool):
    recurrent = True


class WindowedPool(Pool):
    reach = 20


class MixedPool(Pool):
    recurrent = True
    reach = 40


TestPool = Pool.TestCase
TestRecurrentPool = RecurrentPool.TestCase
TestWindowedPool = WindowedPool.TestCase
TestMixedPool = MixedPool.TestCase
for case in (TestPool, TestRecurrentPool, TestWindowedPool, TestMixedPool):
    case.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def run(pages: Pages, tokens: list[int], scope: str | None = "a") -> Lease:
    """Admit, and compute everything, stopping where it must be."""
    lease = pages.admit(tokens, scope)
    assert lease is not None
    computed = lease.found
    while computed < len(tokens):
        stop = pages.stop(lease, computed, len(tokens), len(tokens))
        assert pages.extend(lease, computed, stop)
        pages.keep(lease, tokens, stop)
        computed = stop
    return lease


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


def test_whole_pages_are_shared_and_parts_are_copied() -> None:
    pages = Pages(16, 4)
    first = run(pages, list(range(40)))
    second = pages.admit([*range(36), 99, 98], "a")
    assert second is not None
    assert second.found == 32 and second.pages == first.pages[:2], "the third page is not full, so not shared"
    longer = run(pages, list(range(50)))
    third = pages.admit([*range(36), 99, 98], "a")
    assert third is not None
    assert third.found == 36 and third.pages[:2] == first.pages[:2]
    assert pages.take_copies() == {"page": [(longer.pages[2], third.pages[2])]}


@pytest.mark.parametrize("scopes", [("a", "b"), ("a", None), (None, None)], ids=str)
def test_nothing_is_shared_between_scopes(scopes: tuple[str | None, str | None]) -> None:
    pages = Pages(16, 4)
    run(pages, list(range(40)), scopes[0])
    lease = pages.admit(list(range(40)), scopes[1])
    assert lease is not None and lease.found == 0


def test_without_sharing() -> None:
    pages = Pages(16, 4, sharing=False)
    run(pages, list(range(40)))
    lease = pages.admit(list(range(40)), "a")
    assert lease is not None and lease.found == 0 and pages.kept == 0


def test_the_least_recently_used_goes_first() -> None:
    pages = Pages(7, 1)
    texts = [[n] * 2 * PAGE for n in range(3)]
    for text in [*texts, [*texts[0], 7]]:  # the first is used again
        pages.release(run(pages, text))
    assert pages.kept == 6 and pages.free == 7
    pages.release(run(pages, [8] * 3 * PAGE))  # takes the seventh, and two
    found = []
    for text in texts:
        lease = pages.admit([*text, 7], "a")
        assert lease is not None
        found.append(lease.found)
        pages.release(lease)
    assert found == [2 * PAGE, 0, 2 * PAGE]


def test_who_is_slower_takes_the_page_of_who_was_faster() -> None:
    """Two that computed the same at the same time keep one copy of it."""
    pages = Pages(8, 2)
    tokens = list(range(PAGE + 4))
    one, two = pages.admit(tokens, "a"), pages.admit(tokens, "a")
    assert one is not None and two is not None and two.found == 0
    for lease in (one, two):
        assert pages.extend(lease, 0, len(tokens))
    for lease in (one, two):
        pages.keep(lease, tokens, len(tokens))
    assert one.pages[0] == two.pages[0] and one.pages[1] != two.pages[1] and pages.free == 5


def test_recurrent_states_are_resumed_at_checkpoints() -> None:
    pages = Pages(256, 2, checkpoints=8)
    system, question = [1] * 600, [2] * 50
    first = run(pages, [*system, *question])
    assert pages.take_copies() == {"slot": [(first.slot, slot) for slot in (2, 3)]}, "at 512, and near the end: 640"
    second = pages.admit([*system, *question, *[3] * 30], "a")
    assert second is not None and second.found == 640
    pages.release(second)
    third = run(pages, [*system, *[4] * 50])
    assert third.found == 512
    assert pages.take_copies()["slot"][-2:] == [(third.slot, slot) for slot in (4, 5)], "where they part, and the end"
    pages.release(third)
    fourth = pages.admit([*system, *[5] * 50], "a")
    assert fourth is not None and fourth.found == 592, "whole pages of what all three have in common"


def test_a_generation_keeps_one_checkpoint_that_moves_along() -> None:
    pages = Pages(64, 1, checkpoints=2)
    tokens = [1] * 20
    lease = run(pages, tokens)
    for _ in range(100):
        tokens.append(2)
        assert pages.extend(lease, len(tokens) - 1, len(tokens))
        pages.keep(lease, tokens, len(tokens))
    pages.release(lease)
    for n, found in [(200, 112), (50, 16)]:  # the last page boundary of the generation, that of the prompt
        lease = pages.admit([*tokens[:n], 9], "a")
        assert lease is not None and lease.found == found
        pages.release(lease)
