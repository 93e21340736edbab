"""Streams of chunks: what waits is given together, errors come after what was said before them."""

import asyncio

import pytest
from live_server import Scripted, done, said

from llamina.server.http import bursts, with_keep_alive
from llamina.server.model import Chunk, ErrorInfo, ModelError
from llamina.server.model.client import UNREAD


def test_what_is_there_comes_together() -> None:
    async def main() -> None:
        model = Scripted([said(text="a"), said(text="b"), done()])
        stream = model.generate(prompt="x")
        await asyncio.sleep(0)  # all chunks are there now
        found = [[chunk.text for chunk in chunks] async for chunks in bursts(stream)]
        assert found == [["a", "b", ""]] and model.active == 0
        assert [chunk.text async for chunk in model.generate(prompt="x")] == ["a", "b", ""]

    asyncio.run(main())


def test_silence_is_told() -> None:
    async def main() -> None:
        model = Scripted([])
        waiting = with_keep_alive(model.generate(prompt="x"), seconds=0.01)
        assert await anext(waiting) is None
        await waiting.aclose()  # type: ignore[attr-defined]
        assert model.cancelled == 1 and model.active == 0

    asyncio.run(main())


def test_silence_is_counted_from_the_last_chunk() -> None:
    """One timer serves all waits of a stream: chunks put it off, and each silence is told."""

    async def main() -> None:
        stream = Scripted([]).generate(prompt="x")
        bursts_of = bursts(stream, seconds=0.3)
        loop = asyncio.get_running_loop()
        for _ in range(5):
            loop.call_later(0.15, stream.put, said(text="a"))
            last = loop.time()
            assert [chunk.text for chunk in await anext(bursts_of)] == ["a"]
        for _ in range(2):
            assert await anext(bursts_of) == [] and loop.time() - last >= 0.3
            last = loop.time()
        await bursts_of.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


@pytest.mark.parametrize("last", [ErrorInfo("Internal", "lost"), Chunk(1, error=ErrorInfo("Internal", "lost"))])
def test_an_error_comes_after_what_was_said(last: Chunk | ErrorInfo) -> None:
    async def main() -> None:
        model = Scripted([])
        stream = model.generate(prompt="x")
        for item in (said(text="a"), last):
            stream.put(item)
        assert [chunk.text for chunk in await stream.burst(1)] == ["a"]
        with pytest.raises(ModelError, match="lost"):
            await stream.burst(1)
        assert model.active == 0
        with pytest.raises(StopAsyncIteration):
            await stream.burst(1)

    asyncio.run(main())


def test_an_answer_that_nobody_reads_ends() -> None:
    async def main() -> None:
        model = Scripted([])
        stream = model.generate(prompt="x")
        for _ in range(UNREAD + 1):
            stream.put(said(text="a"))
        assert model.cancelled == 1 and model.active == 0
        assert len(await stream.burst(1)) == UNREAD
        with pytest.raises(ModelError, match=f"{UNREAD} parts of the answer were not read"):
            await stream.burst(1)

    asyncio.run(main())


def test_whoever_stops_waiting_cancels() -> None:
    async def main() -> None:
        model = Scripted([])
        waiting = asyncio.ensure_future(anext(model.generate(prompt="x")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled() and model.cancelled == 1 and model.active == 0

    asyncio.run(main())
