"""The scheduler on integers: no model, no arrays. Computing a slice here is setting `computed`."""

from bisect import insort
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamina import Request
from llamina.cache import Pages
from llamina.engine.schedule import Budget, Slice, schedule
from llamina.engine.sequence import Sequence
from llamina.ops.batch import PAGE

ROOMY = Budget(tokens=512, outputs=512, sequences=16)


def sequence(n: int, all_logits: bool = False) -> Sequence:
    return Sequence(Request(range(n), reads=range(n) if all_logits else None))


@dataclass
class Desk:
    """Queues, a pool and a budget; `step` computes what was scheduled and makes a token where one is due."""

    pages: Pages
    budget: Budget = ROOMY
    running: list[Sequence] = field(default_factory=list)
    waiting: list[Sequence] = field(default_factory=list)
    goals: dict[int, int] = field(default_factory=dict)

    def add(self, n: int, goal: int = 1, all_logits: bool = False, head_start: int = 0) -> Sequence:
        new = sequence(n, all_logits)
        new.rank -= head_start
        self.goals[new.id] = n if all_logits else n + goal
        insort(self.waiting, new, key=lambda r: r.rank)
        return new

    def schedule(self) -> list[Slice]:
        slices = schedule(self.running, self.waiting, self.pages, self.budget)
        self.check(slices)
        return slices

    def step(self) -> list[Slice]:
        slices = self.schedule()
        made = [s.caught_up for s in slices]  # before any sequence grows
        for s, complete in zip(slices, made, strict=True):
            s.sequence.computed = s.stop
            if complete and not s.sequence.request.reads:
                s.sequence.known.append(0)
            if len(s.sequence.known) == self.goals[s.sequence.id] and (complete or not s.sequence.request.reads):
                self.finish(s.sequence)
        return slices

    def finish(self, done: Sequence) -> None:
        assert done.lease is not None
        self.pages.release(done.lease)
        done.lease, done.finish_reason = None, "stop"
        self.running.remove(done)

    def check(self, slices: list[Slice]) -> None:
        """What holds after every call."""
        assert sum(s.stop - s.start for s in slices) <= self.budget.tokens
        assert sum(len(s.outputs) for s in slices) <= self.budget.outputs
        assert len(slices) <= self.budget.sequences
        assert len({id(s.sequence) for s in slices}) == len(slices)
        for s in slices:
            assert s.sequence in self.running and s.sequence not in self.waiting
            assert s.start == s.sequence.computed < s.stop <= len(s.sequence.known)
            assert s.sequence.lease is not None and len(s.sequence.lease.pages) * PAGE >= s.stop
        held = [page for r in self.running for page in (r.lease.pages if r.lease else [])]
        assert len(held) == len(set(held)) and len(held) + self.pages.free == self.pages.total
        assert all(r.lease is not None for r in self.running)
        assert all(r.lease is None and r.computed == 0 for r in self.waiting)
        for queue in (self.running, self.waiting):
            assert queue == sorted(queue, key=lambda r: r.rank)
        if self.running and self.waiting:
            assert self.running[-1].rank <= self.waiting[0].rank, "nobody overtakes"


def spans(slices: list[Slice]) -> list[tuple[int, int]]:
    return [(s.start, s.stop) for s in slices]


def test_nothing_to_do() -> None:
    assert Desk(Pages(4, 2)).schedule() == []


def test_a_prompt_at_once() -> None:
    desk = Desk(Pages(4, 2))
    one = desk.add(20)
    (piece,) = desk.schedule()
    assert (piece.sequence, piece.start, piece.stop, piece.caught_up) == (one, 0, 20, True)
    assert piece.outputs == range(19, 20)
    assert desk.pages.free == 2 and desk.running == [one] and desk.waiting == []


def test_a_prompt_in_chunks_then_token_by_token() -> None:
    desk = Desk(Pages(8, 2), Budget(tokens=8, outputs=8, sequences=2))
    desk.add(20, goal=3)
    steps = [desk.step() for _ in range(5)]
    assert [spans(s) for s in steps] == [[(0, 8)], [(8, 16)], [(16, 20)], [(20, 21)], [(21, 22)]]
    assert [len(s[0].outputs) for s in steps[:2]] == [0, 0], "no logits before the prompt is through"
    assert desk.running == [] and desk.pages.free == 8


def test_running_requests_come_first() -> None:
    desk = Desk(Pages(8, 4), Budget(tokens=8, outputs=8, sequences=4))
    one = desk.add(4, goal=9)
    desk.step()
    two, three = desk.add(20), desk.add(3)
    slices = desk.step()
    assert [s.sequence for s in slices] == [one, two] and spans(slices) == [(4, 5), (0, 7)]
    assert three.computed == 0, "its turn comes when there is room in a step"


def test_a_prompt_gets_less_beside_one_that_generates() -> None:
    desk = Desk(Pages(2000, 8), Budget(tokens=64, outputs=64, sequences=8, beside=16))
    desk.add(4, goal=4)
    desk.step()
    desk.add(150, goal=151)
    assert [spans(desk.step()) for _ in range(2)] == [[(4, 5), (0, 15)], [(5, 6), (15, 30)]]
    assert [spans(desk.step()) for _ in range(3)] == [[(6, 7), (30, 45)], [(45, 109)], [(109, 150)]], "nobody waits"


def test_a_token_in_every_step_beside_long_prompts() -> None:
    """Whoever generates gets a token in every step, whatever the others have to read, older or younger."""
    desk = Desk(Pages(2000, 8), Budget(tokens=64, outputs=64, sequences=8))
    old = desk.add(5000)
    desk.step()
    young = [desk.add(3, goal=40) for _ in range(3)]
    for _ in range(2):
        desk.step()
    assert all(r.computed >= 3 for r in young)
    later = desk.add(9000)
    while any(r.finish_reason is None for r in young):
        generating = {r for r in young if r.finish_reason is None}
        slices = desk.step()
        assert {s.sequence for s in slices} >= generating
        assert sum(s.stop - s.start for s in slices) == 64, "and the rest of the step goes to prompts"
    assert 0 < later.computed < old.computed


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    desk = Desk(Pages(2000, 8), Budget(tokens=512, outputs=512, sequences=8))
    long = desk.add(20_000)
    desk.step()
    assert long.computed == 512, "alone, a prompt takes the whole step"
    short = desk.add(100)
    assert {s.sequence: s.stop - s.start for s in desk.step()} == {long: 412, short: 100}
    assert short.finish_reason == "stop"
    others = [desk.add(1000) for _ in range(3)]
    shares = {s.sequence: s.stop - s.start for s in desk.step()}
    assert [shares[r] for r in (long, *others)] == [256, 128, 64, 64]


def test_a_better_rank_goes_first() -> None:
    desk = Desk(Pages(8, 8), Budget(tokens=16, outputs=16, sequences=1))
    first, urgent = desk.add(4, goal=2), desk.add(4, goal=2, head_start=1000)
    plain = desk.add(4, goal=2)
    assert [s.sequence for s in desk.step()] == [urgent]
    done = []
    while desk.running or desk.waiting:
        done += [s.sequence for s in desk.step() if s.sequence.finish_reason]
    assert done == [urgent, first, plain]


@pytest.mark.parametrize(("slots", "total"), [(1, 8), (4, 2)], ids=["of a place", "of pages"])
def test_a_better_rank_takes_what_it_needs(slots: int, total: int) -> None:
    desk = Desk(Pages(total, slots), Budget(tokens=64, outputs=64, sequences=slots))
    plain = desk.add(PAGE + 4, goal=8)
    desk.step()
    urgent = desk.add(PAGE + 4, goal=2, head_start=1000)
    assert [s.sequence for s in desk.step()] == [urgent]
    assert plain in desk.waiting and plain.computed == 0 and len(plain.known) == PAGE + 5, "its tokens are kept"
    while plain.finish_reason is None:
        desk.step()
    assert len(plain.known) == PAGE + 12 and desk.pages.free == total


def test_nobody_starves_under_overload() -> None:
    """A request is served before those that come later, however many and however small they are."""
    desk = Desk(Pages(10, 4), Budget(tokens=32, outputs=32, sequences=4))
    big = desk.add(9 * PAGE, goal=8)
    for n in range(400):
        desk.add(1 + n % 7, goal=3, head_start=(n % 3) * 10)
        desk.step()
        if big.finish_reason:
            break
    assert big.finish_reason and n < 50
    assert len(desk.waiting) < n, "while the small ones were served as well"


def test_a_request_waits_until_its_known_tokens_fit() -> None:
    """Otherwise it would be computed in part, preempted, and begun again."""
    desk = Desk(Pages(4, 4), Budget(tokens=16, outputs=16, sequences=4))
    first = desk.add(3 * PAGE, goal=10)
    second = desk.add(2 * PAGE)
    while first.finish_reason is None:
        desk.step()
        assert second.computed == 0 or first.finish_reason
    while second.finish_reason is None:
        desk.step()


def test_all_logits_take_outputs() -> None:
    desk = Desk(Pages(8, 4), Budget(tokens=32, outputs=10, sequences=4))
    desk.add(25, all_logits=True)
    steps = [desk.step() for _ in range(3)]
    assert [spans(s) for s in steps] == [[(0, 10)], [(10, 20)], [(20, 25)]]
    assert [len(s[0].outputs) for s in steps] == [10, 10, 5]


def test_whole_requests_wait_for_a_step_that_holds_them() -> None:
    desk = Desk(Pages(8, 4), Budget(tokens=32, outputs=32, sequences=4, whole=True))
    for n in (20, 25, 7, 1):
        desk.add(n, all_logits=True)
    assert [spans(desk.step()) for _ in range(3)] == [[(0, 1), (0, 20), (0, 7)], [(0, 25)], []]


def test_outputs_never_exceed_the_budget() -> None:
    """A request that takes every output leaves none for a prompt that would be through in the same step."""
    desk = Desk(Pages(8, 4), Budget(tokens=32, outputs=10, sequences=4))
    desk.add(25, all_logits=True)
    prompt = desk.add(5)
    slices = desk.step()
    assert sum(len(s.outputs) for s in slices) == 10
    for _ in range(10):
        desk.step()
    assert prompt.finish_reason == "stop"


def test_the_youngest_gives_way() -> None:
    desk = Desk(Pages(3, 3))
    old, young = desk.add(PAGE, goal=20), desk.add(PAGE, goal=20)
    desk.step()  # a page each
    desk.step()  # the old one takes the third page, and the young one wants a fourth
    assert old.computed == PAGE + 1 and old in desk.running
    assert young in desk.waiting and young.computed == 0 and young.lease is None
    while old.finish_reason is None:
        desk.step()
    while young.finish_reason is None:
        desk.step()
    assert desk.pages.free == 3


def test_preempted_requests_keep_their_order() -> None:
    desk = Desk(Pages(4, 4))
    first, second, third = desk.add(PAGE, goal=40), desk.add(PAGE, goal=2), desk.add(PAGE, goal=2)
    later = desk.add(1)
    desk.step()
    while second in desk.running or third in desk.running:
        if second.finish_reason or third.finish_reason:
            break
        desk.step()
    waiting = [r for r in (second, third, later) if r in desk.waiting]
    assert desk.waiting == waiting, "older requests wait in front of younger ones"
    assert first in desk.running


def test_no_more_than_the_slots() -> None:
    desk = Desk(Pages(64, 3))
    for _ in range(5):
        desk.add(4, goal=5)
    assert len(desk.step()) == 3 and len(desk.waiting) == 2


@st.composite
def desks(draw: st.DrawFn) -> tuple[Desk, list[tuple[int, int, int, bool, int]]]:
    """A desk, and requests for it, each of which fits alone: (at step, prompt, goal, all logits, head start)."""
    total, slots = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    tokens = draw(st.integers(1, 40))
    budget = Budget(tokens, draw(st.integers(1, tokens)), draw(st.integers(1, slots)))
    jobs = []
    for _ in range(draw(st.integers(1, 8))):
        prompt = draw(st.integers(1, total * PAGE))
        goal = draw(st.integers(1, max(1, min(40, total * PAGE - prompt + 1))))
        jobs.append((draw(st.integers(0, 20)), prompt, goal, draw(st.booleans()), draw(st.sampled_from([0, 0, 5]))))
    return Desk(Pages(total, slots), budget), jobs


@settings(max_examples=200, deadline=None)
@given(desks())
def test_everyone_is_served(setup: tuple[Desk, list[tuple[int, int, int, bool, int]]]) -> None:
    """Budgets and pages hold at every step (see Desk.check), each step with work does some, nobody starves."""
    desk, jobs = setup
    sequences: list[Sequence] = []
    limit = 50 + 4 * sum((prompt + goal) * (len(jobs) + 1) for _, prompt, goal, *_ in jobs)
    for step in range(limit):
        sequences += [desk.add(*job) for at, *job in jobs if at == step]
        busy = bool(desk.running or desk.waiting)
        assert bool(desk.step()) == busy, "a step with work to do does some"
        if step > 20 and not desk.running and not desk.waiting:
            break
    assert len(sequences) == len(jobs)
    assert all(s.finish_reason for s in sequences), "someone starved"
    assert desk.pages.free == desk.pages.total
