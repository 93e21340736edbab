"""Which models are loaded: on demand, within a budget, for as long as they are used."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from live_server import Scripted

from llamina.engine.core import MAX_WAITING
from llamina.engine.runner.load import DEFAULT_CONTEXT
from llamina.engine.runner.model_runner import ModelRunner
from llamina.server import models as models_module
from llamina.server.config import Config, ModelDefaults, ModelProfile
from llamina.server.errors import ApiError
from llamina.server.memory import SEQUENCES, Estimate, estimate
from llamina.server.model import ModelError
from llamina.server.model.frames import ErrorInfo, Loading
from llamina.server.models import LOOK_AGAIN, Entry, Models
from llamina.server.openai.models import described
from llamina.server.settings.table import settings

Scene = Callable[[Models], Awaitable[None]]


class Worker(Scripted):
    """A model that takes as many bytes as its name says, and loads when it is let."""

    made: list["Worker"]
    gate: asyncio.Event

    def __init__(self, path: str, options: dict[str, Any], adapters: dict[str, str]) -> None:
        super().__init__([])
        self.path, self.options, self.closed = path, options, False
        self.given_up = False
        self.made.append(self)

    async def start(self, progress: Callable[[Loading], None]) -> None:
        progress(Loading("weights", 3, 10))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await self.close()
            raise

    async def wait_ready(self) -> None:
        if self.given_up:
            raise ModelError(ErrorInfo("ModelLost", "it is given up"))

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Config, Scene], None]:
    """Run a scene with models that are as large as their names say."""

    def run(config: Config, scene: Scene) -> None:
        async def main() -> None:
            Worker.made, Worker.gate = [], asyncio.Event()
            Worker.gate.set()
            models = Models(config)
            await scene(models)
            await models.close()
            assert all(worker.closed for worker in Worker.made)

        monkeypatch.setattr(models_module, "WorkerModel", Worker)
        monkeypatch.setattr(models_module, "estimate", lambda profile: Estimate(int(profile.model), 0))
        monkeypatch.setattr(models_module, "resident", lambda model: int(model.path))
        asyncio.run(asyncio.wait_for(main(), 30))

    return run


def sized(**sizes: int) -> dict[str, ModelProfile]:
    return {name: ModelProfile(model=str(size)) for name, size in sizes.items()}


def loaded(models: Models) -> list[str]:
    return [entry.id for entry in models.entries.values() if entry.model is not None]


async def touch(models: Models, name: str) -> None:
    async with models.use(name):
        pass


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_the_least_recently_used_makes_room(play: Any) -> None:
    async def scene(models: Models) -> None:
        await touch(models, "a")
        await touch(models, "b")
        await touch(models, "a")
        await touch(models, "c")
        assert loaded(models) == ["a", "c"]

    play(Config(models=sized(a=1, b=1, c=1), max_models=2), scene)


def test_a_budget_of_memory(play: Any) -> None:
    async def scene(models: Models) -> None:
        for name in ("a", "b", "c"):
            await touch(models, name)
        assert loaded(models) == ["b", "c"]
        await touch(models, "d")  # needs what both have
        assert loaded(models) == ["d"]
        with pytest.raises(ApiError, match="needs about 11 bytes and the server's budget of memory is 10") as caught:
            await touch(models, "huge")
        assert caught.value.status == 503 and loaded(models) == ["d"]

    play(Config(models=sized(a=4, b=4, c=4, d=10, huge=11), memory=10), scene)


def test_a_model_in_use_is_not_unloaded(play: Any) -> None:
    async def scene(models: Models) -> None:
        async with models.use("a"):
            with pytest.raises(ApiError, match="no room for b: 1 models are loaded and in use") as caught:
                await touch(models, "b")
            assert caught.value.status == 503 and caught.value.headers["Retry-After"]
        await touch(models, "b")
        assert loaded(models) == ["b"]

    play(Config(models=sized(a=6, b=6), memory=10), scene)


def test_models_that_load_at_once_share_the_budget(play: Any) -> None:
    async def scene(models: Models) -> None:
        Worker.gate.clear()
        first = asyncio.ensure_future(touch(models, "a"))
        await until(lambda: models.entries["a"].reserved is not None)
        with pytest.raises(ApiError, match="no room"):
            await touch(models, "b")
        Worker.gate.set()
        await first

    play(Config(models=sized(a=6, b=6), memory=10), scene)


def test_waiting_for_a_load(play: Any) -> None:
    """Several wait for one load, which goes on when the one that began it leaves; its progress can be seen."""

    async def scene(models: Models) -> None:
        Worker.gate.clear()
        entry = models.entries["a"]
        first, second = (asyncio.ensure_future(touch(models, "a")) for _ in range(2))
        await until(lambda: entry.progress is not None)
        assert entry.status == "loading" and entry.progress == Loading("weights", 3, 10)
        progress = {"stage": "weights", "done": 3, "total": 10}
        assert described(entry)["meta"].items() >= {"status": "loading", "progress": progress}.items()
        first.cancel()
        await asyncio.sleep(0)
        Worker.gate.set()
        await second
        assert len(Worker.made) == 1 and entry.status == "ready" and entry.progress is None

    play(Config(models=sized(a=1)), scene)


def test_a_load_that_is_ended(play: Any) -> None:
    """Who waits for it is told, and nothing of it is left."""

    async def scene(models: Models) -> None:
        Worker.gate.clear()
        entry = models.entries["a"]
        waiting = asyncio.ensure_future(touch(models, "a"))
        await until(lambda: entry.progress is not None)
        await models.unload(entry)
        with pytest.raises(ApiError, match="a was unloaded before it was ready"):
            await waiting
        assert Worker.made[0].closed and entry.status == "unloaded" and entry.reserved is None
        Worker.gate.set()
        await touch(models, "a")
        assert entry.status == "ready"

    play(Config(models=sized(a=1)), scene)


def test_keep_alive(play: Any) -> None:
    async def scene(models: Models) -> None:
        entry = models.entries["a"]
        async with models.use("a"):
            await asyncio.sleep(0.1)
            assert entry.model is not None, "its time begins after the last request"
        await until(lambda: entry.model is None)
        await touch(models, "a")
        await models.keep(entry, float("inf"))
        await touch(models, "a")
        assert entry.timer is None and entry.model is not None
        async with models.use("a"):
            await models.keep(entry, 0)
            assert entry.model is not None
        await until(lambda: entry.model is None)

    play(Config(models=sized(a=1), defaults=ModelDefaults(keep_alive=0.05)), scene)


def test_a_model_is_not_unloaded_under_a_stream(play: Any) -> None:
    """Between the end of a handler and the begin of its answer nobody uses a model, and a stream is under way."""

    async def scene(models: Models) -> None:
        entry = models.entries["a"]
        async with models.use("a") as (_, model):
            stream = model.generate(prompt="x")
        await asyncio.sleep(3 * LOOK_AGAIN)
        assert entry.model is model, "its time is over, but not the stream"
        with pytest.raises(ApiError, match="no room"):
            await touch(models, "b")
        with pytest.raises(ApiError, match="use 'a'"):
            await models.remove(entry)
        stream.cancel()
        await until(lambda: entry.model is None)

    play(Config(models=sized(a=1, b=1), max_models=1, defaults=ModelDefaults(keep_alive=0)), scene)


def test_a_model_that_was_given_up_is_begun_anew(play: Any) -> None:
    async def scene(models: Models) -> None:
        await touch(models, "a")
        Worker.made[0].given_up = True
        with pytest.raises(ModelError):
            await touch(models, "a")
        entry = models.entries["a"]
        assert entry.status == "failed" and entry.error == "it is given up"
        await touch(models, "a")
        assert len(Worker.made) == 2 and entry.status == "ready"

    play(Config(models=sized(a=1)), scene)


def test_the_end_is_told_to_those_who_wait(play: Any) -> None:
    async def scene(models: Models) -> None:
        Worker.gate.clear()
        waiting = asyncio.ensure_future(touch(models, "a"))
        await until(lambda: models.entries["a"].progress is not None)
        models.stop("the end")
        with pytest.raises(ApiError, match="the end") as caught:
            await waiting
        assert caught.value.code == "shutting_down"
        with pytest.raises(ApiError, match="the end"):
            await touch(models, "b")

    play(Config(models=sized(a=1, b=1)), scene)


def test_defaults_and_aliases(play: Any) -> None:
    async def scene(models: Models) -> None:
        await touch(models, "gpt")
        assert Worker.made[0].options == {"context": 64, "threads": 1, "sampling": {"top_k": 2, "min_p": 0.5}}
        assert models.add("later", ModelProfile(model="1")).profile.context == 128

    profile = ModelProfile(model="1", aliases=["gpt"], context=64, sampling={"top_k": 2})
    defaults = ModelDefaults(context=128, threads=1, sampling={"top_k": 1, "min_p": 0.5})
    play(Config(models={"a": profile}, defaults=defaults), scene)


def test_the_estimate_is_what_is_loaded(golden: Any) -> None:
    """Weights and KV cache, as the engine itself reserves them."""
    import llamina

    path = str(golden("stories260K.gguf"))
    profile = ModelProfile(model=path, context=256, max_sequences=3)
    with llamina.load(path, context=256, max_sequences=3) as engine:
        memory = engine.memory()
    assert estimate(profile) == Estimate(memory.weights, memory.cache)
    assert estimate(ModelProfile(model="no/such-model-anywhere")) == Estimate(0, 0)
    assert Entry("x", profile).memory == 0


def test_the_defaults_that_are_told_are_the_engine_s() -> None:
    default = inspect.signature(ModelRunner.__init__).parameters["max_sequences"].default
    told = {setting.path[-1]: setting.about for setting in settings(ModelDefaults)}
    assert default == SEQUENCES and f"by default {default}." in told["max_sequences"]
    assert f"By default {MAX_WAITING}." in told["max_waiting"] and f"at most {DEFAULT_CONTEXT}." in told["context"]
