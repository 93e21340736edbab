"""Measures a server by its URL: a result for each load."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any, Literal

import msgspec

from llamina.backends.host import giving_way
from llamina.bench.machine import header
from llamina.bench.percentiles import percentiles
from llamina.bench.url.arrivals import Arrivals, Concurrency
from llamina.bench.url.client import Client, Outcome
from llamina.bench.url.prompts import words, words_for
from llamina.errors import CapacityError, RequestError

Tick = Callable[[str, int, int], None]  # a load's name, its requests done, and all of them
EACH = 4  # requests for each that is sent at a time, unless told
MANY = 1 << 32  # more requests than a run has
LEAST = 16  # requests of a load, unless told


@dataclass(frozen=True, slots=True)
class Asked:
    """What to send, and where."""

    url: str
    loads: Sequence[Arrivals]
    model: str = ""  # by default the server's first
    key: str = ""
    api: Literal["chat", "completions"] = "chat"
    prompt: int = 32  # tokens, about
    tokens: int = 128  # that each answer has
    total: int | None = None  # requests of each load
    dataset: Sequence[Any] = ()  # prompts, in the place of random words
    seed: int = 0  # of the random words: a server that caches prefixes knows those of an earlier run
    ignore_eos: bool = True  # an extension that llamina, llama.cpp and vLLM have: answers are as long as asked


def measure_url(asked: Asked, command: str, tick: Tick) -> dict[str, Any]:
    """The record of a measurement. Raises RequestError if the server cannot be reached, CapacityError if it fails."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_measure(asked, command, tick))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The quickest event loop that there is."""
    try:
        import uvloop
    except ImportError:  # Windows
        return None
    return uvloop.new_event_loop


async def _measure(asked: Asked, command: str, tick: Tick) -> dict[str, Any]:
    driver = Driver(asked)
    try:
        await driver.prepare()
        results = [await driver.measure(load, tick) for load in asked.loads]
    finally:
        driver.close()
    settings = asdict(asked) | {"model": driver.model, "dataset": len(asked.dataset), "key": bool(asked.key)}
    del settings["loads"]
    return {**header("url", command), "settings": settings, "results": results}


class Driver:
    """Sends requests to one server."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self._client = asked, Client(asked.url, asked.key)
        self.model = asked.model
        self._words = asked.prompt
        self._sent = 0

    async def prepare(self) -> None:
        """Find the model, and how many words a prompt has. The server is warm afterwards."""
        if not self.model:
            models = (await self._client.get("/models")).get("data")
            if not models:
                raise RequestError("the server has no model: name one with -m", "model")
            self.model = models[0]["id"]
        self._words = await words_for(self._asked.prompt, self._count)

    async def _count(self, prompt: str) -> int:
        """The tokens of a prompt, as the server counts them."""
        outcome = (await self._client.ask(self._path, self._body(prompt, 2))).read()
        if outcome.error is not None:
            raise CapacityError(f"the server did not answer: {outcome.error}")
        return outcome.prompt_tokens

    async def measure(self, load: Arrivals, tick: Tick) -> dict[str, Any]:
        """Send all requests of a load."""
        total = self._asked.total or max(LEAST, EACH * load.at_a_time if isinstance(load, Concurrency) else 0)
        done = 0
        tick(load.name, 0, total)

        async def send(number: int, due: float | None) -> Outcome:
            nonlocal done
            outcome = await self._client.ask(self._path, self._body(self._prompt(number), self._asked.tokens), due)
            done += 1
            tick(load.name, done, total)
            return outcome

        with giving_way():  # what the client interrupts is the server
            start = time.perf_counter()
            outcomes = await load.run(total, send)
            seconds = time.perf_counter() - start
        self._sent += total
        return summary(load, [outcome.read() for outcome in outcomes], seconds)

    @property
    def _path(self) -> str:
        return "/chat/completions" if self._asked.api == "chat" else "/completions"

    def _prompt(self, number: int) -> Any:
        data = self._asked.dataset
        return data[number % len(data)] if data else words(self._words, self._asked.seed * MANY + self._sent + number)

    def _body(self, prompt: Any, tokens: int) -> bytes:
        if self._asked.api == "chat":
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            said: dict[str, Any] = {"messages": messages}
        elif isinstance(prompt, str):
            said = {"prompt": prompt}
        else:
            raise RequestError("the dataset has messages: --api completions needs prompts", "dataset")
        body = {"model": self.model, **said, "max_tokens": tokens, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}} | ({"ignore_eos": True} if self._asked.ignore_eos else {})
        return msgspec.json.encode(body)

    def close(self) -> None:
        self._client.close()


def summary(load: Arrivals, outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Rates and percentiles of the requests that were answered, and what went wrong with the others.

    Raises CapacityError if none was answered.
    """
    answered = [outcome for outcome in outcomes if outcome.error is None]
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not answered:
        raise CapacityError(f"none of {len(outcomes)} requests was answered: {errors[0]}")
    tokens = sum(outcome.completion_tokens or len(outcome.times) for outcome in answered)
    return {
        "name": load.name,
        **asdict(load),
        "requests": len(outcomes),
        "errors": len(errors),
        "messages": sorted(set(errors))[:5],
        "seconds": seconds,
        "unit": "tokens/s",
        "rate": tokens / seconds,
        "requests_per_second": len(answered) / seconds,
        "prompt_tokens": mean(outcome.prompt_tokens for outcome in answered),
        "completion_tokens": tokens / len(answered),
        "first_token": percentiles([outcome.first_token for outcome in answered]),
        "inter_token": percentiles([gap for outcome in answered for gap in outcome.gaps]),
        "whole": percentiles([outcome.end - outcome.start for outcome in answered]),
    }
