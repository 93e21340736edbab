"""When requests are sent: so many at a time (closed loop), or so many a second at random (open loop)."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from llamina.bench.url.client import Outcome

Send = Callable[[int, float | None], Awaitable[Outcome]]  # a request by its number, with the time it is due


@dataclass(frozen=True, slots=True)
class Concurrency:
    """A closed loop: as many requests at a time, each followed at once by the next."""

    at_a_time: int

    @property
    def name(self) -> str:
        return f"{self.at_a_time} at a time"

    async def run(self, total: int, send: Send) -> list[Outcome]:
        outcomes: list[Outcome] = []
        numbers = iter(range(total))

        async def work() -> None:
            for number in numbers:
                outcomes.append(await send(number, None))

        await asyncio.gather(*(work() for _ in range(min(self.at_a_time, total))))
        return outcomes


@dataclass(frozen=True, slots=True)
class Rate:
    """An open loop: requests come whether others are answered or not, as a Poisson process.

    A request's clock starts when it is due, so that a server that is late is seen to be.
    """

    per_second: float

    @property
    def name(self) -> str:
        return f"{self.per_second:g} a second"

    async def run(self, total: int, send: Send) -> list[Outcome]:
        drawn = random.Random(total)
        due = time.perf_counter()
        tasks = []
        for number in range(total):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.ensure_future(send(number, due)))
            due += drawn.expovariate(self.per_second)
        return list(await asyncio.gather(*tasks))


Arrivals = Concurrency | Rate
