"""examples/browser.py: a page of another origin that talks with the server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import TIMEOUT, scripted, spoken
from live_server import Live, Scripted, serving

from llamina.server.config import Config

PROGRAM = Path(__file__).parents[2] / "examples" / "browser.py"


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """The address of the page, which the program prints."""
    command = [sys.executable, PROGRAM, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        yield running.stdout.readline().strip()
        running.terminate()


@pytest.fixture(scope="module")
def server(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that lets the page in, with a scripted model."""
    with serving({}, Config(data=str(tmp_path_factory.mktemp("data")), cors_origins=[origin])) as live:
        yield live


@pytest.fixture
def page(browser: Any, origin: str, server: Live) -> Iterator[Any]:
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    scripted(server, "scripted", spoken("Hello, **you**! <img src=x onerror=alert(1)> 1 < 2"))
    page.goto(f"{origin}/?server={server.url}")
    page.wait_for_function("() => document.getElementById('model').textContent === 'scripted'")
    yield page
    context.close()
    assert errors == []


def ask(page: Any, text: str) -> None:
    page.fill("#question", text)
    page.press("#question", "Enter")


def answered(page: Any, count: int) -> None:
    """Wait until so many answers are there, and none is being made."""
    ready = "n => document.querySelectorAll('#talk .assistant').length === n && !document.getElementById('send').hidden"
    page.wait_for_function(ready, arg=count)


def test_a_talk(page: Any, server: Live) -> None:
    ask(page, "Who are you?")
    answered(page, 1)
    ask(page, "Again?")
    answered(page, 2)
    said = "Hello, **you**! <img src=x onerror=alert(1)> 1 < 2"
    assert page.locator("#talk p").all_inner_texts() == ["Who are you?", said, "Again?", said]
    assert page.locator("#talk img").count() == 0, "an answer is text, whatever it says"
    model = server.models.entries["scripted"].model
    assert isinstance(model, Scripted) and len(model.asked) == 2


def test_stopping(page: Any, server: Live) -> None:
    """What was said stays."""
    scripted(server, "scripted", spoken("Once upon a time")[:-1])  # never ends
    ask(page, "A story")
    page.wait_for_function("() => document.querySelector('#talk').textContent.includes('time')")
    page.click("#stop")
    answered(page, 1)
    assert page.locator("#talk .assistant").inner_text() == "Once upon a time"
    assert page.locator("#status").inner_text() == ""


def test_a_refusal_is_shown(page: Any) -> None:
    page.evaluate("() => (document.getElementById('model').textContent = 'nobody')")
    ask(page, "Hello?")
    page.wait_for_function("() => document.getElementById('status').textContent.includes('nobody')")
