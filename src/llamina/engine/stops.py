"""Stop strings in a stream: text that may still become one is held back."""

from collections.abc import Sequence


class StopStrings:
    """Feed it text; it gives back what is safe to show, and says when a stop string is complete."""

    def __init__(self, stops: Sequence[str], shown: bool = False) -> None:
        """`shown`: the stop string that is hit is given back, too."""
        self._stops, self._shown = tuple(stops), shown
        self._held = ""
        self.hit = False
        self.found = ""  # the stop string that was hit

    def push(self, text: str) -> str:
        """Text that is certainly not part of a stop string; after a hit, nothing."""
        if not self._stops or self.hit:
            return "" if self.hit else text
        self._held += text
        found = [(at, i) for i, at in enumerate(self._held.find(s) for s in self._stops) if at >= 0]
        if found:
            at, first = min(found)
            self.hit, self.found = True, self._stops[first]
            return self._take(at + (len(self.found) if self._shown else 0))
        return self._take(len(self._held) - self._possible())

    def flush(self) -> str:
        """What was held back, once nothing more can come."""
        return "" if self.hit else self._take(len(self._held))

    def _possible(self) -> int:
        """The longest tail of the held text that begins a stop string."""
        longest = max(map(len, self._stops)) - 1
        for n in range(min(longest, len(self._held)), 0, -1):
            if any(s.startswith(self._held[-n:]) for s in self._stops):
                return n
        return 0

    def _take(self, n: int) -> str:
        text, self._held = self._held[:n], self._held[n:]
        return text
