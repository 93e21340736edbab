"""`llamina tui --url` and `llamina top`, with a server: plots of its numbers, and a request that is cancelled."""

import threading
from pathlib import Path

import httpx
import pytest
from live_server import Live, Scripted, done, said, wait_for
from textual.pilot import Pilot

from llamina.repl.library import Library
from llamina.repl.remote import RemotePartner
from llamina.repl.server_events import Server
from llamina.tui.chat import Chat
from llamina.tui.plot import Plot
from llamina.tui.speeds import Speeds
from llamina.tui.top import Top
from pilots import play, sees, shown, type_in, until


@pytest.mark.parametrize("size", [(130, 36), (80, 24)], ids=["wide", "80x24"])
def test_top_shows_a_request_and_cancels_it(live: Live, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[httpx.Response] = []
    body = {"model": "smollm2", "prompt": "Once", "max_tokens": 60_000, "ignore_eos": True, "context_shift": True}
    asking = threading.Thread(target=lambda: answers.append(live.post("/v1/completions", body)))
    top = Top(Server(live.url))
    notes: list[str] = []  # on the screen they go away by themselves
    monkeypatch.setattr(top, "notify", lambda text, **options: notes.append(text))

    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "all models", "smollm2", "stories", "ready", "0 running", "pages")
        asking.start()
        await sees(pilot, "running", "of 60,000", "1 running, 0 waiting")
        speed = next(plot for plot in top.query(Plot) if plot.curve.title == "tokens/s")
        await until(pilot, lambda: (speed.latest or 0) > 1)
        await until(pilot, lambda: all(plot.latest is not None for plot in top.query(Plot)))
        await pilot.press("m")
        await sees(pilot, "top  " + live.url + " · smollm2")
        await pilot.press("c")
        await until(pilot, lambda: notes)
        assert notes[0].endswith("of smollm2 is cancelled"), notes
        await sees(pilot, "0 running")
        await until(pilot, lambda: "of 60,000" not in shown(pilot))
        await pilot.press("q")

    play(top, steps, size)
    asking.join(20)
    assert answers[0].json()["usage"]["completion_tokens"] < 60_000
    assert wait_for(lambda: live.idle("smollm2"))


def test_a_server_that_is_not_there_is_told(live: Live) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "http://127.0.0.1:9/dashboard/events")

    play(Top(Server("http://127.0.0.1:9/v1")), steps)


def test_a_conversation_with_a_server(live: Live, tmp_path: Path) -> None:
    """Tokens arrive, the plots are the server's, and Ctrl-T shows its requests."""
    chat = Chat(
        lambda progress: RemotePartner(f"{live.url}/v1", "smollm2"),
        Library(tmp_path),
        settings={"max_tokens": 60_000, "temperature": 0, "ignore_eos": True, "context_shift": True},
        server=Server(f"{live.url}/v1"),
    )

    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "smollm2")
        await type_in(pilot, "hello")
        plots = {plot.curve.title: plot for plot in chat.query_one(Speeds).query(Plot)}
        await until(pilot, lambda: (plots["tokens/s"].latest or 0) > 0 and (plots["batch"].latest or 0) > 0)
        assert (plots["KV cache"].latest or 0) > 0
        await pilot.press("ctrl+t")
        await sees(pilot, "llamina top", "of 60,000")
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is chat)
        await pilot.press("ctrl+c")
        await sees(pilot, "stopped", "tok/s", "context")

    play(chat, steps)
    chat.close()
    assert wait_for(lambda: live.idle("smollm2"))
    kept, _ = Library(tmp_path).read()
    assert [message["role"] for message in kept[0].messages] == ["user", "assistant"]


def test_a_server_without_figures(live: Live, tmp_path: Path) -> None:
    """Where nobody tells, speed is what arrives here."""
    live.adopt("says", lambda: Scripted([said(text="one "), said(text="two"), done()]))

    partner = RemotePartner(f"{live.url}/v1", "says")
    partner._server = Server(f"{live.url}/nowhere")
    chat = Chat(lambda progress: partner, Library(tmp_path))

    async def steps(pilot: Pilot[None]) -> None:
        await sees(pilot, "says", "measured here", "404")
        await type_in(pilot, "hi")
        await sees(pilot, "one two")
        plot = chat.query_one(Speeds).query(Plot).first()
        await until(pilot, lambda: any(point.generated for point in plot._points))

    play(chat, steps)
    chat.close()
