"""The pictures of `llamina tui` and `top` in docs/images: `python tools/terminal_screenshots.py URL` of a server."""

import asyncio
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from textual.screen import Screen

from llamina.repl.library import Library
from llamina.repl.remote import RemotePartner
from llamina.repl.server_events import Server
from llamina.tui.app import Terminal
from llamina.tui.chat import Chat
from llamina.tui.top import Top

FOLDER = Path(__file__).parents[1] / "docs" / "images"
SIZE = (132, 38)
QUESTIONS = (
    "Name three rivers of Peru.",
    "Why do llamas hum?",
    "Write is_prime(n) in Python, without a docstring. Then say in one sentence how it works.",
)
SETTINGS = {"temperature": 0, "max_tokens": 300}
TOPICS = ("a hum", "a mountain", "wool", "an alpaca", "the rain")
PLOTTED = 60  # seconds


def save(app: Terminal, name: str) -> None:
    """What is on the screen as SVG, in fonts of the reader's; letters a little larger, so that blocks leave no gaps."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", app.export_screenshot())
    svg = re.sub(r"(-matrix\s*{[^}]*font-size: )20px", r"\g<1>22px", svg)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace")
    (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")


async def picture(screen: Screen[None], name: str, steps: Any, light: bool = False) -> None:
    """A screen, after what happens in it."""
    app = Terminal(lambda: screen, light)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1)
        await steps(pilot)
        save(app, name)


async def work(url: str) -> None:
    """Requests that keep a server busy, until it is cancelled."""

    async def ask(client: httpx.AsyncClient, topic: str) -> None:
        while True:
            prompt = f"A long story about llamas. It begins with {topic}"
            await client.post(f"{url}/v1/completions", json={"prompt": prompt, "max_tokens": 120})

    async with httpx.AsyncClient(timeout=300) as client:
        await asyncio.gather(*(ask(client, topic) for topic in TOPICS))


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chat = Chat(lambda progress: RemotePartner(f"{url}/v1"), Library(Path(folder)), settings=SETTINGS)

        async def talk(pilot: Any) -> None:
            for question in QUESTIONS:
                await pilot.press("ctrl+n", *question, "enter")
                await pilot.pause(0.5)
                while chat.current.busy:
                    await pilot.pause(0.5)
            await pilot.pause(1)

        await picture(chat, "tui", talk)
        chat.close()
    busy = asyncio.create_task(work(url))
    await picture(Top(Server(url)), "top", lambda pilot: pilot.pause(PLOTTED), light=True)
    busy.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
