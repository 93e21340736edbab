"""Random operations under a small page budget: every output is what it is alone, and every page comes back.

LLAMINA_SOAK sets how many operations; a few hundred otherwise.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import llamina
from llamina import Engine, Request, Sampling
from llamina.gguf import GGUF

OPERATIONS = int(os.environ.get("LLAMINA_SOAK") or 300)
CONTEXT, PAGES, PLACES = 160, 20, 5
VOCAB = 100


@dataclass(frozen=True)
class Stretch:
    """What a request made on its own from some tokens on: to be made again, alone."""

    known: tuple[int, ...]
    made: tuple[int, ...]
    temperature: float
    seed: int


@dataclass(eq=False)
class Life:
    """A request, and what it should have said since somebody last interfered."""

    request: Request
    known: list[int]
    said: int = 0  # tokens it had made then
    dropped: int = 0
    stretches: list[Stretch] = field(default_factory=list)

    def close(self) -> None:
        """Somebody is about to interfere."""
        made = tuple(self.request.generated[self.said :])
        if made:
            sampling = self.request.sampling
            self.stretches.append(Stretch(tuple(self.known), made, sampling.temperature, sampling.seed or 0))

    def open(self) -> None:
        """Somebody has interfered."""
        self.known, self.said = list(self.request.known), len(self.request.generated)
        self.dropped = self.request.dropped


class Soak:
    """An engine, and what is done to it."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.systems = [[1 + self.random.randrange(VOCAB - 1) for _ in range(90)] for _ in range(3)]
        self.lives: list[Life] = []
        self.shelf: list[bytes] = []
        self.done: dict[str, int] = {}

    def tokens(self, most: int) -> list[int]:
        return [1 + self.random.randrange(VOCAB - 1) for _ in range(self.random.randrange(most))]

    def sampling(self) -> Sampling:
        return Sampling(temperature=self.random.choice([0, 1.0]), seed=self.random.randrange(9))

    def live(self) -> list[Life]:
        return [life for life in self.lives if life.request.finish_reason is None]

    def submit(self) -> None:
        begin = self.random.choice(self.systems)[: self.random.randrange(1, 91)]
        request = Request(
            [*begin, *self.tokens(20)],
            self.sampling(),
            max_tokens=self.random.randrange(1, 40),
            ignore_eos=True,
            priority=self.random.choice([0, 0, 0, 1]),
            cache_prompt=self.random.random() < 0.9,
            cache_salt=self.random.choice(["", "", "tenant"]),
            context_shift=self.random.random() < 0.2,
            speculate=self.random.choice(["auto", "off", "ngram", 1, 5]),
        )
        self.lives.append(Life(self.engine.submit(request), list(request.known)))

    def step(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.engine.step()
            for life in self.lives:
                if life.request.dropped > life.dropped:  # half of the old tokens went after this step's token
                    life.close()
                    life.open()

    def cancel(self) -> None:
        self.engine.cancel(self.random.choice(self.live()).request)

    def fork(self) -> None:
        life = self.random.choice(self.live())
        other = self.sampling() if self.random.random() < 0.5 else None
        self.adopt(self.engine.fork(life.request, other))

    def adopt(self, request: Request) -> None:
        life = Life(request, [])
        life.open()
        self.lives.append(life)

    def rewind(self) -> None:
        life = self.random.choice(self.lives)
        request, tokens = life.request, self.tokens(3)
        there = min(len(request.generated), len(request.known) - 1) if request.dropped else len(request.generated)
        n = self.random.randrange(there + 1)
        room = self.engine.limits.room - len(request.known) + n
        if len(request.generated) - n + len(tokens) >= (request.max_tokens or 0) or len(tokens) > room:
            return
        life.close()
        self.engine.rewind(request, n, tokens)
        life.open()

    def snapshot(self) -> None:
        self.shelf.append(self.engine.snapshot(self.random.choice(self.lives).request))

    def resume(self) -> None:
        self.adopt(self.engine.resume(self.shelf.pop(self.random.randrange(len(self.shelf)))))

    def forget(self) -> None:
        self.engine.pages.forget()

    def act(self) -> None:
        names = ["step"] * 6 + ["submit"] * (3 if len(self.engine.waiting) < 8 else 0)
        names += ["cancel", "fork", "fork"] if self.live() else []
        names += ["rewind"] * 2 + ["snapshot"] if self.lives else []
        names += ["resume"] if self.shelf else []
        names += ["forget"] if self.random.random() < 0.2 else []
        name = self.random.choice(names)
        getattr(self, name)()
        self.done[name] = self.done.get(name, 0) + 1

    def finish(self) -> None:
        while self.engine.running or self.engine.waiting:
            self.step()
        for life in self.lives:
            life.close()


def check(engine: Engine, stretches: list[Stretch]) -> None:
    """Each, alone and from its first token on, is the same."""
    for stretch in stretches:
        options = {"ignore_eos": True, "cache_prompt": False, "temperature": stretch.temperature, "seed": stretch.seed}
        alone = engine.generate(stretch.known, max_tokens=len(stretch.made), **options)
        assert tuple(alone.tokens) == stretch.made


@pytest.mark.parametrize("name", ["stories", "jamba-dense", "mamba2-dense", "gemma3-dense", "deepseek2-moe"])
def test_soak(name: str, stories: Path, speaking: Callable[[str], GGUF]) -> None:
    model = stories if name == "stories" else speaking(name)
    options = {"context": CONTEXT, "max_sequences": PLACES, "max_tokens": 40}
    with llamina.load(model, threads=2, cache_tokens=16 * PAGES, **options) as engine:
        soak = Soak(engine, seed=len(name))
        for _ in range(OPERATIONS):
            soak.act()
        soak.finish()
        assert set(soak.done) == {"step", "submit", "cancel", "fork", "rewind", "snapshot", "resume", "forget"}
        assert engine.metrics.preemptions > 5 and engine.metrics.cached_tokens > OPERATIONS
        assert engine.pages.free == engine.pages.total == PAGES
        engine.pages.forget()
        assert engine.pages.kept == 0 and not engine.pages.take_copies()
        lease = engine.pages.admit([1] * 16 * PAGES)
        assert lease is not None and engine.pages.extend(lease, 0, 16 * PAGES), "all of them can be had"
    with llamina.load(model, threads=1, context=CONTEXT) as alone:
        stretches = list(dict.fromkeys(s for life in soak.lives for s in life.stretches))
        assert len(stretches) > OPERATIONS / 8
        check(alone, stretches)
