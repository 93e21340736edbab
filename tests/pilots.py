"""Ways to look at a Textual application that a test drives by its pilot."""

import asyncio
from collections.abc import Awaitable, Callable

from textual.pilot import Pilot
from textual.screen import Screen

from llamina.tui.app import Terminal

PATIENCE = 60.0  # seconds
Steps = Callable[[Pilot[None]], Awaitable[None]]


def play(screen: Screen[None], steps: Steps, size: tuple[int, int] = (130, 36)) -> Terminal:
    """Run the application with a screen, and these steps in it."""
    app = Terminal(lambda: screen)

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await sees(pilot, "Keys")
            await steps(pilot)

    asyncio.run(run())
    return app


def shown(pilot: Pilot[None]) -> str:
    """What is on the screen, line by line."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Go on when a condition is true. Raises AssertionError, with the screen, if it never is."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError("it does not come true:\n" + shown(pilot)) from None


async def sees(pilot: Pilot[None], *texts: str) -> None:
    """Wait for texts on the screen."""
    await until(pilot, lambda: all(text in shown(pilot) for text in texts))


async def type_in(pilot: Pilot[None], text: str) -> None:
    """Type a line and send it."""
    await pilot.press(*("space" if letter == " " else letter for letter in text), "enter")
