"""How far to draft: how often drafts come true, and what it costs to verify them."""

from collections.abc import Iterable

GUESSES = (0.25, 0.25, 0.4, 0.65, 0.8, 0.9, 0.95)  # chances before anything is known, by the bits of a match's length
WEIGHT = 8  # drafted tokens that outweigh a guess
MEMORY = 64  # drafted tokens that are remembered; older ones fade
GAIN = 1.1  # drafts must promise so many times as many tokens in the same time
HOPELESS = 0.02  # a draft is not prolonged when all of it comes true this seldom


class Chances:
    """How likely the next token of a draft is right, by how many tokens before it were."""

    def __init__(self, guesses: tuple[float, ...] = GUESSES) -> None:
        self._guesses = guesses
        self._right = [WEIGHT * guess for guess in guesses]
        self._seen = [float(WEIGHT)] * len(guesses)

    def __getitem__(self, matched: int) -> float:
        level = self._level(matched)
        return self._right[level] / self._seen[level]

    def learn(self, matched: int, right: bool) -> None:
        level = self._level(matched)
        self._right[level] += right
        self._seen[level] += 1
        if self._seen[level] > MEMORY:
            self._right[level] /= 2
            self._seen[level] /= 2

    def relax(self) -> None:
        """Nothing was drafted, and nothing learnt: the guesses come back slowly."""
        for level, guess in enumerate(self._guesses):
            self._right[level] += (WEIGHT * guess - self._right[level]) / MEMORY
            self._seen[level] += (WEIGHT - self._seen[level]) / MEMORY

    def _level(self, matched: int) -> int:
        return min(matched.bit_length(), len(self._seen) - 1)


class Costs:
    """Seconds of a step by the number of its tokens, measured: seconds per token, from each power of two to the next.

    Kernels change over to other ways at powers of two, and sixteen tokens may take less time than fifteen.
    """

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}

    def learn(self, tokens: int, seconds: float) -> None:
        at, rate = tokens.bit_length(), seconds / tokens
        if not self._rates:
            self._rates[at] = rate
            return
        expected = self._rate(at)
        rate = min(rate, 2 * expected)  # somebody else was busy on the machine
        self._rates[at] = expected + 0.25 * (rate - expected) if at in self._rates else rate

    def seconds(self, tokens: int) -> float:
        return tokens * self._rate(tokens.bit_length())

    def _rate(self, at: int) -> float:
        """What was measured; what was not is between its neighbours, or beyond them less for every doubling."""
        if (known := self._rates.get(at)) is not None:
            return known
        below = max((level for level in self._rates if level < at), default=None)
        above = min((level for level in self._rates if level > at), default=None)
        if below is None or above is None:
            nearest = below if below is not None else above
            assert nearest is not None
            return self._rates[nearest] * float(0.85 ** (at - nearest))
        share = (at - below) / (above - below)
        return (1 - share) * self._rates[below] + share * self._rates[above]

    def __bool__(self) -> bool:
        return bool(self._rates)


def worthwhile(chances: Iterable[float], beside: int, costs: Costs, drafting: float = 0.0) -> int:
    """How many drafted tokens bring the most tokens per second; 0 if it is best to draft none.

    `beside` are tokens that the step computes anyway for others, `drafting` the seconds that a drafted token costs.
    """
    if not costs:
        return 0
    made, sure = float(beside + 1), 1.0
    best, rate = 0, GAIN * made / costs.seconds(beside + 1)
    for n, chance in enumerate(chances, 1):
        sure *= chance
        if sure < HOPELESS:
            break
        made += sure
        promised = made / (costs.seconds(beside + 1 + n) + n * drafting)
        if promised > rate:
            best, rate = n, promised
    return best
