"""Drafts without a model: what came before after the same tokens, and the rest of what is being copied."""

from collections.abc import Iterator, Sequence

from llamina.engine.speculation.shared_prefix import common

SIZES = (8, 4, 2)  # how many tokens must be the same for a place to be found; the longest are looked for first
NEAR = 8  # how far a copy may slip when something in it was replaced, added or left out
LONGEST = 64  # tokens of a draft


class Lookup:
    """An index over the tokens of one sequence, and the place in it that they seem to be copied from."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[int, dict[tuple[int, ...], int]] = {size: {} for size in SIZES}
        self._place = 0  # what was drafted last came from there on; moved by what has come since
        self._trust = 0  # how many tokens came from there; halved when one did not

    def follow(self, tokens: Sequence[int]) -> None:
        """Learn what came since the last time; if tokens were taken back or dropped, begin anew."""
        known = len(self._tokens)
        if self._tokens[-LONGEST:] != tokens[max(0, known - LONGEST) : known]:
            self.__init__()  # type: ignore[misc]
        start, new = len(self._tokens), tokens[len(self._tokens) :]
        self._tokens.extend(new)
        for at in range(start, len(tokens)):
            for size, after in self._after.items():
                if at >= size:
                    after[tuple(tokens[at - size : at])] = at
        right = common(new, self._tokens[self._place : self._place + len(new)])
        if self._trust:
            self._trust = self._trust + right if right == len(new) else (self._trust + right) // 2
        self._place += len(new)

    @property
    def copying(self) -> bool:
        """Whether so much came from one place that more is expected from there after what differs."""
        return self._trust >= SIZES[0]

    def draft(self) -> tuple[int, list[int]]:
        """What may come next, and how many tokens just before it are the same there; nothing if none are."""
        near, place = self._nearby() if self._trust else (0, 0)
        size, found = next(self._found(), (0, 0))
        if size > near and (not near or size == SIZES[0] or not self.copying):
            self._place, self._trust = found, 0
        elif near:
            self._place = place
        else:
            return 0, []
        same = self._same(self._place, LONGEST)
        self._trust = min(LONGEST, max(same, self._trust))
        return same, self._continued(self._place)

    def _found(self) -> Iterator[tuple[int, int]]:
        """Where the same tokens were last, those with the most in common first."""
        for size, after in self._after.items():
            if (at := after.get(tuple(self._tokens[-size:]))) is not None:
                yield size, at

    def _nearby(self) -> tuple[int, int]:
        """How many of the last tokens are the same around the place that is copied from, and where."""
        end = len(self._tokens)
        places = [p for p in range(self._place - NEAR, self._place + NEAR + 1) if 0 < p < end]
        return max(((self._same(p, SIZES[0]), p) for p in places), key=self._merit, default=(0, 0))

    def _merit(self, candidate: tuple[int, int]) -> tuple[int, int]:
        same, place = candidate
        return same, -abs(place - self._place)

    def _same(self, at: int, most: int) -> int:
        """How many tokens before `at` are also the last ones."""
        tokens, end, n = self._tokens, len(self._tokens), 0
        while n < min(at, most) and tokens[at - n - 1] == tokens[end - n - 1]:
            n += 1
        return n

    def _continued(self, at: int) -> list[int]:
        """The tokens from `at` on; where they reach the end, they begin again."""
        found = self._tokens[at : at + LONGEST]
        return (found * -(-LONGEST // len(found)))[:LONGEST]
