"""The engine in a thread of its own: asyncio, callbacks, progress."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Coroutine
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tqdm import tqdm

import llamina
from llamina import AsyncEngine, Engine
from llamina.engine import Delta
from llamina.errors import ContextTooLong, LlaminaError, RequestError
from skips import import_peer

PROMPTS = ["Once upon a time", "Lily and Tom went to the", "The", "One day, a big dog saw a ball in"]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
LONG = [1, *[3 + 7 * i % 500 for i in range(999)]]


def play(stories: Path, scene: Callable[[AsyncEngine], Coroutine[Any, Any, None]], **options: Any) -> Engine:
    """Run a scene with an engine; the engine afterwards, closed."""

    async def main() -> Engine:
        async with await AsyncEngine.load(stories, threads=1, context=1100, **options) as engine:
            await asyncio.wait_for(scene(engine), 120)
            return engine.engine

    return asyncio.run(main())


def test_without_a_name_it_is_the_default_model(stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.hub.DEFAULT", str(stories))
    monkeypatch.setattr("llamina.hub.obtain", lambda name, progress, **_: Path(name))

    async def main() -> str:
        async with await AsyncEngine.load(threads=1) as engine:
            return (await engine.generate("Once upon a time", **GREEDY)).text

    with llamina.load(stories, threads=1) as named:
        assert asyncio.run(main()) == named.generate("Once upon a time", **GREEDY).text


def test_many_at_once(stories: Path, engine: Engine) -> None:
    """All in one batch, each as if alone."""
    expected = [engine.generate(prompt, **GREEDY) for prompt in PROMPTS]

    async def scene(many: AsyncEngine) -> None:
        results = await asyncio.gather(*(many.generate(prompt, **GREEDY) for prompt in PROMPTS))
        assert [r.text for r in results] == [e.text for e in expected]
        assert [r.tokens for r in results] == [e.tokens for e in expected]
        assert results[0].usage.completion_tokens == 24 and results[0].usage.prompt_seconds > 0

        async def pieces(prompt: str) -> list[str]:
            return [delta.text async for delta in many.stream(prompt, **GREEDY)]

        streamed = await asyncio.gather(*map(pieces, PROMPTS))
        assert ["".join(s) for s in streamed] == [e.text for e in expected] and len(streamed[0]) > 5
        assert many.engine.metrics.batch_sequences.total > many.engine.metrics.steps, "they were computed together"

    play(stories, scene)


def test_several_answers(stories: Path, engine: Engine) -> None:
    """As without asyncio: all, the best of them, those that a beam search finds; the prompt is computed once."""
    ways: list[dict[str, Any]] = [
        {"n": 3, "temperature": 1.0, "seed": 5},
        {"n": 2, "best_of": 4, "temperature": 1.0, "seed": 5, "logprobs": 1},
        {"n": 2, "beam_width": 3},
    ]

    async def scene(many: AsyncEngine) -> None:
        for options in ways:
            options |= {"max_tokens": 12}
            expected, found = engine.generate(LONG[:90], **options), await many.generate(LONG[:90], **options)
            assert (found.tokens, found.logprobs) == (expected.tokens, expected.logprobs)
            assert [a.tokens for a in found.alternatives] == [a.tokens for a in expected.alternatives]
        computed = many.engine.metrics.prompt_tokens
        await many.generate([2, *LONG[1:90]], n=4, max_tokens=3)
        assert many.engine.metrics.prompt_tokens - computed < 2 * 90
        streams = await many.streams(PROMPTS[0], 2, temperature=1.0, seed=1, max_tokens=8)
        texts = ["".join([delta.text async for delta in stream]) for stream in streams]
        assert texts == [s.result().text for s in engine.streams(PROMPTS[0], 2, temperature=1.0, seed=1, max_tokens=8)]
        for wrong in ({"n": 0}, {"n": 2, "best_of": 1}, {"n": 2, "beam_width": 1}, {"n": 2, "max_tokens": 0}):
            with pytest.raises(RequestError):
                await many.generate(PROMPTS[0], **wrong)
        task = asyncio.ensure_future(many.generate(LONG, n=3, max_tokens=None, ignore_eos=True))
        while not await many.call(lambda: len(many.engine.core.running) + len(many.engine.core.waiting) == 3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await quiet(many)

    play(stories, scene)


def test_a_beam_search_beside_others(stories: Path, engine: Engine) -> None:
    """Whoever comes while it is made is answered in the same steps; nothing is left of one that is not wanted."""
    options: dict[str, Any] = {"beam_width": 4, "n": 4, "length_penalty": 0.0, "max_tokens": 100}
    expected = engine.generate(PROMPTS[0], **options)

    async def scene(many: AsyncEngine) -> None:
        search = asyncio.ensure_future(many.generate(PROMPTS[0], **options))
        while not await many.call(lambda: len(many.engine.core.running) == 4):
            await asyncio.sleep(0)
        other = await many.generate(PROMPTS[1], temperature=0, max_tokens=8)
        assert not search.done() and other.tokens == engine.generate(PROMPTS[1], temperature=0, max_tokens=8).tokens
        found = await search
        assert [a.tokens for a in (found, *found.alternatives)] == [
            a.tokens for a in (expected, *expected.alternatives)
        ]
        search = asyncio.ensure_future(many.generate(PROMPTS[0], **options))
        while not await many.call(lambda: len(many.engine.core.running) == 4):
            await asyncio.sleep(0)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        await quiet(many)
        left = asyncio.ensure_future(many.generate(PROMPTS[0], **options))
        while not await many.call(lambda: len(many.engine.core.running) == 4):
            await asyncio.sleep(0)
        await many.close()
        with pytest.raises(RequestError, match="closed before the answer was complete"):
            await left

    play(stories, scene)


def test_readings_beside_generations(stories: Path, engine: Engine) -> None:
    """Computed in the same steps; a reading that is not wanted any more ends."""
    texts = [" ".join(PROMPTS[i:]) for i in range(3)]

    async def scene(many: AsyncEngine) -> None:
        long = asyncio.ensure_future(many.generate(PROMPTS[0], temperature=0, max_tokens=200, ignore_eos=True))
        vectors, score, scores = await asyncio.gather(
            many.embed(texts, pooling="mean"), many.score("Once upon", " a time"), many.token_scores(texts[0])
        )
        assert not long.done() and np.array_equal(vectors, engine.embed(texts, pooling="mean"))
        assert score == engine.score("Once upon", " a time") and scores == engine.token_scores(texts[0])
        for reading in (many.embed(texts, adapters={"none": 1.0}), many.score("", ""), many.rerank("a", ["b"])):
            with pytest.raises(LlaminaError):
                await reading
        assert len((await long).tokens) == 200
        task = asyncio.ensure_future(many.embed([LONG] * 40))
        while not await many.call(lambda: many.engine.core.running):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await quiet(many)
        assert many.engine.metrics.requests["cancelled"] > 10

    play(stories, scene)


def test_conversations(smollm2: Path) -> None:
    messages = [{"role": "user", "content": "What is the capital of Japan?"}]
    with llamina.load(smollm2, threads=2, context=256) as plain:
        expected = plain.chat(messages, **GREEDY)

    async def main() -> None:
        async with await AsyncEngine.load(smollm2, threads=2, context=256) as engine:
            answer = await engine.chat(messages, **GREEDY)
            assert (answer.text, answer.tokens) == (expected.text, expected.tokens)
            assert answer.message() == expected.message()
            turn = engine.stream_chat(messages, **GREEDY)
            deltas = [delta async for delta in turn]
            assert len([event for delta in deltas for event in delta.events]) > 3
            assert (await turn.result()).text == expected.text == "".join(map(str, deltas))
            with pytest.raises(RequestError, match="temprature"):
                await engine.chat(messages, temprature=1)
            asked: list[tuple[str, int]] = []

            def capital(country: Literal["Japan", "Peru"]) -> str:
                asked.append((country, threading.get_ident()))
                return "Tokyo"

            async def wait(country: Literal["Japan", "Peru"]) -> str:
                await asyncio.sleep(0)
                return capital(country)

            for function in (capital, wait):
                run = await engine.run_tools(
                    messages, [function], max_rounds=1, tool_choice="required", temperature=0, max_tokens=60
                )
                assert run.rounds == 1 and run.messages[2]["content"] == "Tokyo"
            assert [thread == threading.get_ident() for _, thread in asked] == [False, True]
            begun = engine.stream_chat(messages, **GREEDY)
            await anext(begun)
            await begun.aclose()
            assert not engine.engine.core.running

    asyncio.run(main())


def test_the_loop_goes_on_while_a_step_is_computed(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop turns while a thread is in the compiled plan. A step on a busy machine may see few turns, 30 do not."""

    async def main() -> None:
        async with await AsyncEngine.load(smollm2, threads=1, context=600) as engine:
            computing, turns, steps = False, 0, 0
            run = engine.engine.runner.program.launch

            def watched(batch: Any) -> Any:
                nonlocal computing
                computing = True
                try:
                    return run(batch)
                finally:
                    computing = False

            monkeypatch.setattr(engine.engine.runner.program, "launch", watched)
            while turns < 10 and steps < 30:
                turns = 0
                prompt = [steps, *range(100, 500)]  # no prefix of it is cached
                task = asyncio.ensure_future(engine.generate(prompt, max_tokens=1, temperature=0))
                while not task.done():
                    await asyncio.sleep(0.001)
                    turns += computing
                steps += 1
                assert engine.engine.metrics.steps == steps and (await task).usage.prompt_tokens == 401
            assert turns >= 10, f"the loop stood still in {steps} steps"

    asyncio.run(main())


def test_cancelled_by_cancelling_the_task(stories: Path) -> None:
    async def scene(engine: AsyncEngine) -> None:
        first = asyncio.Event()

        async def read() -> None:
            async for _ in engine.stream(LONG, temperature=0, max_tokens=None, ignore_eos=True):
                first.set()

        task = asyncio.ensure_future(read())
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await quiet(engine)

    assert play(stories, scene).metrics.requests["cancelled"] == 1


async def quiet(engine: AsyncEngine) -> None:
    """Until the engine has nothing to do."""
    while await engine.call(lambda: len(engine.engine.core.running) + len(engine.engine.core.waiting)):
        await asyncio.sleep(0)


@pytest.mark.parametrize("begun", [True, False])
def test_cancelled_by_dropping(stories: Path, begun: bool) -> None:
    async def scene(engine: AsyncEngine) -> None:
        gc.disable()  # nobody needs to wait for the collector
        try:
            stream = engine.stream(PROMPTS[0], temperature=0, max_tokens=None, ignore_eos=True)
            if begun:
                await anext(stream)
                assert await engine.call(lambda: len(engine.engine.core.running)) == 1
            del stream
            await quiet(engine)
        finally:
            gc.enable()

    assert play(stories, scene).metrics.requests["cancelled"] == int(begun)


def test_closing_early(stories: Path) -> None:
    async def scene(engine: AsyncEngine) -> None:
        stream = engine.stream(PROMPTS[0], temperature=0, max_tokens=None, ignore_eos=True)
        first = await anext(stream)
        await stream.aclose()
        assert not engine.engine.core.running
        assert [delta async for delta in stream] == []
        result = await stream.result()
        assert result.finish_reason == "cancelled" and result.text.startswith(first.text)

    play(stories, scene)


def engine_threads() -> set[int | None]:
    return {thread.ident for thread in threading.enumerate() if thread.name == "llamina-engine"}


def test_closing_the_engine_ends_everything(stories: Path) -> None:
    before = engine_threads()

    async def scene(engine: AsyncEngine) -> None:
        stream = engine.stream(PROMPTS[0], temperature=0, max_tokens=None, ignore_eos=True)
        await anext(stream)
        await engine.close()
        await engine.close()
        with pytest.raises(RequestError, match="closed before the answer was complete"):
            await stream.result()
        assert stream.sequence is not None and stream.sequence.finish_reason == "error"
        with pytest.raises(RequestError, match="closed"):
            await engine.generate("Once")

    play(stories, scene)
    assert engine_threads() <= before, "others may have theirs"


def test_refusals_reach_the_caller(stories: Path) -> None:
    async def scene(engine: AsyncEngine) -> None:
        with pytest.raises(ContextTooLong):
            await engine.generate([1] * 2000)
        with pytest.raises(RequestError, match="temprature"):
            await engine.generate("Once", temprature=1)
        with pytest.raises(RequestError):
            await engine.chat([{"role": "user", "content": "no template"}])
        with pytest.raises(ZeroDivisionError):
            await engine.generate("Once", logits_processor=lambda tokens, logits: logits / (1 // 0))
        with pytest.raises(ZeroDivisionError):
            await engine.generate("Once", on_delta=lambda delta: 1 // 0)
        assert (await engine.generate("Once", **GREEDY)).tokens

    play(stories, scene)


def test_an_error_in_a_step_reaches_everyone(stories: Path) -> None:
    async def scene(engine: AsyncEngine) -> None:
        run = engine.engine.runner.program.launch

        def fail(batch: Any) -> Any:
            engine.engine.runner.program.launch = run  # type: ignore[method-assign]
            raise OSError("the disk is gone")

        engine.engine.runner.program.launch = fail  # type: ignore[method-assign]
        results = await asyncio.gather(*(engine.generate(p, **GREEDY) for p in PROMPTS[:1]), return_exceptions=True)
        assert [str(r) for r in results] == ["the disk is gone"]
        assert (await engine.generate(PROMPTS[0], **GREEDY)).tokens, "and then it goes on"

    play(stories, scene)


def test_between_two_steps(stories: Path) -> None:
    """Snapshots, forks and everything else of the engine, from a task."""

    async def scene(engine: AsyncEngine) -> None:
        stream = engine.stream(PROMPTS[0], **GREEDY)
        await anext(stream)
        assert stream.sequence is not None
        data = await engine.call(engine.engine.snapshot, stream.sequence)
        whole = await stream.result()
        twin = await engine.call(engine.engine.resume, data)
        await quiet(engine)
        assert twin.text == whole.text

    play(stories, scene)


def test_listeners(engine: Engine) -> None:
    """A callback is told of chunks and of tokens, may cancel, and harms nobody but itself."""
    heard: list[Delta] = []
    result = engine.generate(LONG[:600], on_delta=heard.append, cache_prompt=False, ignore_eos=True, **GREEDY)
    assert [d.tokens for d in heard] == [(), *((token,) for token in result.tokens)]
    assert heard[-1].finish_reason == "length" and "".join(d.text for d in heard) == result.text

    def stop(delta: Delta) -> None:
        assert delta.id == stream.sequence.id
        if len(stream.sequence.generated) == 3:
            engine.cancel(stream.sequence)

    stream = engine.stream(PROMPTS[0], on_delta=stop, **GREEDY)
    stopped = stream.result()
    assert stopped.finish_reason == "cancelled" and len(stopped.tokens) == 3
    other = engine.stream(PROMPTS[1], **GREEDY)
    with pytest.raises(ZeroDivisionError):
        engine.generate(PROMPTS[0], on_delta=lambda delta: 1 // 0, **GREEDY)
    assert other.result().tokens == engine.generate(PROMPTS[1], **GREEDY).tokens
    with pytest.raises(RequestError) as caught:
        engine.generate(PROMPTS[0], on_delta="loudly")
    assert caught.value.param == "on_delta"


def test_progress(engine: Engine) -> None:
    with tqdm(file=StringIO(), mininterval=0) as bar:
        seen: list[tuple[int, int]] = []
        move = llamina.progress(bar, max_tokens=24)

        def follow(delta: Delta) -> None:
            move(delta)
            seen.append((bar.n, bar.total))

        engine.generate(LONG[:600], on_delta=follow, cache_prompt=False, ignore_eos=True, **GREEDY)
    assert seen[0] == (512, 624) and seen[1] == (601, 624) and seen[-1] == (624, 624)
    assert [n for n, _ in seen] == sorted(n for n, _ in seen)


def test_progress_of_a_widget(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of the end, and in between not more often than a browser can follow."""
    widget, told = import_peer("ipywidgets").IntProgress(), []
    widget.observe(lambda change: told.append(change.new), "value")
    move = llamina.progress(widget, max_tokens=24)
    monkeypatch.setattr(sys.modules["llamina.engine.progress"], "PAUSE", 3600)
    engine.generate(LONG[:600], on_delta=move, cache_prompt=False, ignore_eos=True, **GREEDY)
    assert (widget.value, widget.max) == (624, 624) and told[-1] == 624 and len(told) <= 2


def test_a_draft_model(stories: Path, engine: Engine) -> None:
    """Its drafts are verified, counted, and end with the stream that is cancelled; the answer is the same."""
    expected = engine.generate(PROMPTS[0], **GREEDY)

    async def scene(drafting: AsyncEngine) -> None:
        stream = drafting.stream(PROMPTS[1], speculate=3, **GREEDY)
        await anext(stream)
        await stream.aclose()
        answer = await drafting.generate(PROMPTS[0], speculate=3, **GREEDY)  # a number: whatever steps take
        assert answer.tokens == expected.tokens
        assert 0 < answer.usage.accepted_tokens <= answer.usage.drafted_tokens
        assert drafting.engine.metrics.drafted_tokens >= answer.usage.drafted_tokens

    after = play(stories, scene, draft=stories)
    assert after.core.pages.free == after.core.pages.total
