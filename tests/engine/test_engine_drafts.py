"""What is guessed, and how far it pays."""

import pytest

from llamina.engine.speculation.draft_length import Chances, Costs, worthwhile
from llamina.engine.speculation.prompt_lookup import LONGEST, Lookup


def drafted(tokens: list[int], before: list[int] | None = None) -> tuple[int, list[int]]:
    lookup = Lookup()
    if before:
        lookup.follow(before)
        lookup.draft()
    lookup.follow(tokens)
    return lookup.draft()


def test_what_came_after_the_same_tokens() -> None:
    assert drafted([1, 2, 3, 4, 5]) == (0, [])
    matched, tokens = drafted([1, 2, 3, 4, 5, 9, 1, 2])
    assert matched == 2 and tokens[:4] == [3, 4, 5, 9] and len(tokens) == LONGEST
    matched, tokens = drafted([1, 2, 3, 4, 7, 9, 2, 3, 4, 8, 9, 1, 2, 3, 4])
    assert matched == 4 and tokens[0] == 7, "four tokens in common are more than three that came later"
    matched, tokens = drafted([5, 6, 1, 5, 6, 2, 5, 6])
    assert matched == 2 and tokens[0] == 2, "of equals the latest"


def test_a_loop_goes_on() -> None:
    assert drafted([7, 8, 9] * 3)[1][:7] == [7, 8, 9, 7, 8, 9, 7]


def test_a_copy_goes_on_after_what_differs() -> None:
    source = list(range(100, 140))
    copy = [0, *source[:12]]
    for changed in ([500], [500, 501], []):
        now = [*source, *copy, *changed, *source[13:15]]
        _, tokens = drafted(now, [*source, *copy])
        assert tokens[:5] == source[15:20], "a token replaced, replaced by two, and left out"


def test_tokens_that_were_taken_back() -> None:
    lookup = Lookup()
    lookup.follow([1, 2, 3, 1, 2])
    assert lookup.draft()[1][0] == 3
    lookup.follow([1, 2, 4, 1, 2])
    assert lookup.draft()[1][0] == 4


def costs(rates: dict[int, float]) -> Costs:
    found = Costs()
    for tokens, seconds in rates.items():
        found.learn(tokens, seconds)
    return found


FLAT = {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0, 32: 1.0, 64: 1.1}  # steps wait for memory
STEEP = {n: float(n) for n in (1, 2, 4, 8, 16, 32, 64)}  # every token costs the same


def test_drafts_are_as_long_as_it_pays() -> None:
    sure, doubtful, wrong = [0.99] * 60, [0.6] * 60, [0.02] * 60
    assert worthwhile(sure, 0, costs(FLAT)) > 25 > worthwhile(doubtful, 0, costs(FLAT)) > 1
    assert worthwhile(wrong, 0, costs(FLAT)) == 0
    assert worthwhile(sure, 0, costs(STEEP)) == 0, "nothing is gained"
    assert worthwhile(sure, 0, Costs()) == 0, "nothing is known yet"
    assert worthwhile(doubtful, 0, costs(FLAT), drafting=0.3) < worthwhile(doubtful, 0, costs(FLAT))
    assert worthwhile(sure, 0, costs(FLAT), drafting=2.0) == 0, "guessing costs more than computing"


def test_more_may_cost_less() -> None:
    """Where sixteen tokens take less time than fifteen, a guess goes that far."""
    found = costs({1: 1.0, 3: 2.2, 6: 4.5, 15: 10.5, 16: 6.0, 31: 9.0})
    assert found.seconds(15) > found.seconds(16) and worthwhile([0.92] * 15, 0, found) == 15
    assert worthwhile([0.92] * 14, 0, found) < 4


def test_others_come_first() -> None:
    """Where the steps of many requests are busy already, guesses have to be better."""
    busy = costs({1: 1.0, 8: 1.1, 16: 1.5, 32: 4.0, 64: 12.0})
    assert worthwhile([0.8] * 20, 0, busy) > worthwhile([0.8] * 20, 15, busy) == 0


def test_chances_follow_what_happens() -> None:
    chances = Chances()
    assert chances[2] < chances[8] < chances[64]
    for _ in range(100):
        chances.learn(3, right=False)
    assert chances[2] < 0.1 < chances[4]
    for _ in range(600):
        chances.relax()
    assert chances[2] == pytest.approx(Chances()[2], abs=0.02)


def test_one_disturbed_step_does_not_spoil_the_costs() -> None:
    found = costs(FLAT)
    found.learn(1, 100.0)
    assert found.seconds(1) < 1.5
    for _ in range(20):
        found.learn(1, 1.0)
    assert found.seconds(1) == pytest.approx(1.0, rel=0.05)
