"""Token buckets: so much a minute, a minute's worth at once, and debts that time pays."""

import time
from collections.abc import Callable

MINUTE = 60.0
Clock = Callable[[], float]


class Bucket:
    """Holds at most `capacity`, and gets that much back in a minute. It may be overdrawn: then nothing is there."""

    def __init__(self, capacity: int, clock: Clock = time.monotonic) -> None:
        self.capacity = capacity
        self._clock, self._level, self._at = clock, float(capacity), clock()

    @property
    def level(self) -> float:
        now = self._clock()
        self._level = min(self.capacity, self._level + (now - self._at) * self.capacity / MINUTE)
        self._at = now
        return self._level

    def take(self, amount: float) -> None:
        self._level = self.level - amount

    def wait_for(self, amount: float) -> float:
        """Seconds until so much is there; 0 if it is."""
        return max(0.0, amount - self.level) * MINUTE / self.capacity

    @property
    def reset(self) -> float:
        """Seconds until it is full."""
        return self.wait_for(self.capacity)


class Account:
    """The buckets of one key, or of all together, and how many requests it has under way."""

    def __init__(self, requests: int, tokens: int, concurrent: int, clock: Clock = time.monotonic) -> None:
        self.requests = Bucket(requests, clock) if requests else None
        self.tokens = Bucket(tokens, clock) if tokens else None
        self.concurrent, self.running = concurrent, 0

    @property
    def idle(self) -> bool:
        """Whether forgetting it changes nothing."""
        full = all(b is None or b.level >= b.capacity for b in (self.requests, self.tokens))
        return full and not self.running

    def spend(self, tokens: int) -> None:
        """Charge tokens that were read or made."""
        if self.tokens is not None:
            self.tokens.take(tokens)

    def take_request(self) -> None:
        if self.requests is not None:
            self.requests.take(1)

    def obstacle(self, under_way: int = 0) -> tuple[str, float] | None:
        """(what is used up, seconds until it is not) if another request may not come now.

        A request is let in while any tokens are there, and charged as it uses them: so a bucket may go into debt, and
        nobody is let in until that is paid. `under_way`: how many of those that run are the one that asks.
        """
        if self.concurrent and self.running - under_way >= self.concurrent:
            return f"{self.concurrent} requests are under way, as many as may be at a time", 1.0
        if self.requests is not None and (wait := self.requests.wait_for(1)) > 0:
            return f"{self.requests.capacity} requests a minute are allowed", wait
        if self.tokens is not None and (wait := self.tokens.wait_for(1)) > 0:
            return f"{self.tokens.capacity} tokens a minute are allowed", wait
        return None

    def headers(self) -> dict[str, str]:
        """As OpenAI names them."""
        found: dict[str, str] = {}
        for name, bucket in (("requests", self.requests), ("tokens", self.tokens)):
            if bucket is not None:
                found[f"x-ratelimit-limit-{name}"] = str(bucket.capacity)
                found[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.level)))
                found[f"x-ratelimit-reset-{name}"] = f"{bucket.reset:.3g}s"
        return found
