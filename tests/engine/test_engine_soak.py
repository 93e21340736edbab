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
from llamina.engine import Sequence
from llamina.engine.runner import memory
from llamina.errors import RequestError, SnapshotError
from llamina.gguf import GGUF
from llamina.plan import adaptable
from lora_files import draw, save

OPERATIONS = int(os.environ.get("LLAMINA_SOAK") or 300)
CONTEXT, PAGES, PLACES = 160, 20, 5
VOCAB = 100
NAMES = ("left", "right")  # under which adapters are loaded, now this one and now that
USES: tuple[dict[str, float], ...] = ({}, {}, {}, {"left": 1.0}, {"right": 0.5}, {"right": 1.0, "left": -0.7})
Adapted = tuple[tuple[Path, float], ...]  # files of adapters and their scales


@dataclass(frozen=True)
class Stretch:
    """What a request made on its own from some tokens on: to be made again, alone."""

    known: tuple[int, ...]
    made: tuple[int, ...]
    temperature: float
    seed: int
    adapted: Adapted


@dataclass(eq=False)
class Life:
    """A sequence, and what it should have said since somebody last interfered."""

    sequence: Sequence
    known: list[int]
    said: int = 0  # tokens it had made then
    dropped: int = 0
    adapted: Adapted = ()
    stretches: list[Stretch] = field(default_factory=list)

    def close(self) -> None:
        """Somebody is about to interfere."""
        made = tuple(self.sequence.generated[self.said :])
        if made:
            sampling = self.sequence.request.sampling
            drawn = sampling.temperature, sampling.seed or 0
            self.stretches.append(Stretch(tuple(self.known), made, *drawn, self.adapted))

    def open(self, loaded: dict[str, Path]) -> None:
        """Somebody has interfered; these adapters are loaded under their names."""
        self.known, self.said = list(self.sequence.known), len(self.sequence.generated)
        self.dropped = self.sequence.dropped
        self.adapted = tuple((loaded[name], scale) for name, scale in self.sequence.request.adapters.items())


class Soak:
    """An engine, and what is done to it."""

    def __init__(self, engine: Engine, adapters: list[Path], seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.adapters = adapters
        self.loaded: dict[str, Path] = {}
        for name, path in zip(NAMES, adapters, strict=False):
            self.load(name, path)
        self.systems = [[1 + self.random.randrange(VOCAB - 1) for _ in range(90)] for _ in range(3)]
        self.lives: list[Life] = []
        self.shelf: list[tuple[bytes, dict[str, Path]]] = []
        self.done: dict[str, int] = {}

    def load(self, name: str, path: Path) -> None:
        self.engine.load_adapter(path, name)
        self.loaded[name] = path

    def tokens(self, most: int) -> list[int]:
        return [1 + self.random.randrange(VOCAB - 1) for _ in range(self.random.randrange(most))]

    def sampling(self) -> Sampling:
        return Sampling(temperature=self.random.choice([0, 1.0]), seed=self.random.randrange(9))

    def live(self) -> list[Life]:
        return [life for life in self.lives if life.sequence.finish_reason is None]

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
            adapters=self.random.choice(USES),
        )
        self.adopt(self.engine.submit(request))

    def step(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.engine.step()
            for life in self.lives:
                if life.sequence.dropped > life.dropped:  # half of the old tokens went after this step's token
                    life.close()
                    life.open(self.loaded)

    def cancel(self) -> None:
        self.engine.cancel(self.random.choice(self.live()).sequence)

    def fork(self) -> None:
        life = self.random.choice(self.live())
        other = self.sampling() if self.random.random() < 0.5 else None
        self.adopt(self.engine.fork(life.sequence, other))

    def adopt(self, sequence: Sequence) -> None:
        life = Life(sequence, [])
        life.open(self.loaded)
        self.lives.append(life)

    def rewind(self) -> None:
        life = self.random.choice(self.lives)
        sequence, tokens = life.sequence, self.tokens(3)
        made, most = len(sequence.generated), sequence.request.max_tokens or 0
        n = self.random.randrange((min(made, len(sequence.known) - 1) if sequence.dropped else made) + 1)
        room = self.engine.core.limits.room - len(sequence.known) + n
        if made - n + len(tokens) >= most or len(tokens) > room:
            return
        life.close()
        self.engine.rewind(sequence, n, tokens)
        life.open(self.loaded)

    def snapshot(self) -> None:
        sequence = self.random.choice(self.lives).sequence
        self.shelf.append((self.engine.snapshot(sequence), self.used(sequence.request)))

    def used(self, request: Request) -> dict[str, Path]:
        """The adapters that a request's names stand for now."""
        return {name: self.loaded[name] for name in request.adapters}

    def resume(self) -> None:
        data, used = self.shelf.pop(self.random.randrange(len(self.shelf)))
        if used.items() <= self.loaded.items():
            self.adopt(self.engine.resume(data))
        else:
            with pytest.raises(SnapshotError, match="other adapters"):
                self.engine.resume(data)

    def swap(self) -> None:
        """Another adapter under a name, unless somebody is using it."""
        name = self.random.choice(NAMES)
        if any(name in life.sequence.request.adapters for life in self.live()):
            with pytest.raises(RequestError, match="requests use adapter"):
                self.engine.unload_adapter(name)
            return
        self.engine.unload_adapter(name)
        self.load(name, next(path for path in self.adapters if path not in self.loaded.values()))

    def forget(self) -> None:
        self.engine.core.pages.forget()

    def act(self) -> None:
        names = ["step"] * 6 + ["submit"] * (3 if len(self.engine.core.waiting) < 8 else 0)
        names += ["cancel", "fork", "fork"] if self.live() else []
        names += ["rewind"] * 2 + ["snapshot"] if self.lives else []
        names += ["resume"] if self.shelf else []
        names += ["swap"]
        names += ["forget"] if self.random.random() < 0.2 else []
        name = self.random.choice(names)
        getattr(self, name)()
        self.done[name] = self.done.get(name, 0) + 1

    def finish(self) -> None:
        while self.engine.core.running or self.engine.core.waiting:
            self.step()
        for life in self.lives:
            life.close()


def check(engine: Engine, stretches: list[Stretch]) -> None:
    """Each, alone and from its first token on, is the same."""
    for stretch in stretches:
        options = {"ignore_eos": True, "cache_prompt": False, "temperature": stretch.temperature, "seed": stretch.seed}
        adapters = {path.name: scale for path, scale in stretch.adapted}
        alone = engine.generate(stretch.known, max_tokens=len(stretch.made), adapters=adapters, **options)
        assert tuple(alone.tokens) == stretch.made


def make_adapters(path: Path, folder: Path) -> list[Path]:
    """Three: two beside the same matrices, one beside all that there are."""
    with llamina.load(path) as engine:
        names, architecture = list(adaptable(engine.runner.plan)), engine.runner.model.config.architecture
    drawn = [draw(path, some, rank, rank) for some, rank in ((names[1::3], 4), (names[1::3], 7), (names, 3))]
    return [save(folder / f"{i}.gguf", architecture, pairs, alpha=8.0) for i, pairs in enumerate(drawn)]


MODELS = ["stories", "jamba-dense", "mamba2-dense", "gemma3-dense", "lfm2-dense", "deepseek2-moe"]
WINDOWED = ["gemma3-dense", "lfm2-dense"]


@pytest.mark.parametrize(("name", "windows"), [*((n, False) for n in MODELS), *((n, True) for n in WINDOWED)])
def test_soak(
    name: str,
    windows: bool,
    stories: Path,
    files: Callable[[str], Path],
    speaking: Callable[[str], GGUF],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `windows`, so few places that windowed layers have no memory for all pages."""
    model = stories if name == "stories" else speaking(name)
    adapters = make_adapters(stories if name == "stories" else files(name), tmp_path)
    options = {"context": CONTEXT, "max_sequences": PLACES, "step_tokens": 40}
    if windows:
        monkeypatch.setattr(memory, "WINDOW_SHARE", 1)
        options |= {"max_sequences": 3, "step_tokens": 16}
    with llamina.load(model, threads=2, cache_tokens=16 * PAGES, **options) as engine:
        pages = engine.core.pages
        assert (pages.windows.total > 0) == windows
        soak = Soak(engine, adapters, seed=len(name))
        for _ in range(OPERATIONS):
            soak.act()
        soak.finish()
        assert set(soak.done) == {
            "step", "submit", "cancel", "fork", "rewind", "snapshot", "resume", "swap", "forget",
        }  # fmt: skip
        assert engine.metrics.preemptions > 5 and engine.metrics.cached_tokens > OPERATIONS / 4
        assert pages.free == pages.total == PAGES
        pages.forget()
        assert pages.kept == 0 and not pages.take_copies()
        assert pages.windows.kept == 0 and pages.windows.free == pages.windows.total
        lease = pages.admit([1] * 16 * PAGES)
        assert lease is not None and pages.extend(lease, 16 * PAGES - 1, 16 * PAGES), "all of them can be had"
    with llamina.load(model, threads=1, context=CONTEXT) as alone:
        for path in adapters:
            alone.load_adapter(path, path.name)
        stretches = list(dict.fromkeys(s for life in soak.lives for s in life.stretches))
        assert len(stretches) > OPERATIONS / 8
        check(alone, stretches)
