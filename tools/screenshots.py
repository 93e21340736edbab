"""The pictures of the page in docs/images: `python tools/screenshots.py URL`, with a server that runs."""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parents[1] / "docs" / "images"
QUESTIONS = (
    "Why do llamas hum?",
    "Name three rivers of Peru.",
    "Give the quadratic formula in LaTeX, then a short Python function that returns both roots. Be brief.",
)
SETTINGS = '{"temperature": "0", "max_tokens": "300"}'
SIZES = {"desk": (1280, 860), "phone": (390, 844)}


def talk(page: Page) -> None:
    """Ask the questions, each in a conversation of its own."""
    for question in QUESTIONS:
        page.evaluate("() => document.getElementById('new').click()")
        page.fill("#input", question)
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".message-assistant[aria-busy=false] .stats", timeout=120_000)


def main(url: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        page = browser.new_page()
        page.goto(url)
        page.evaluate("text => localStorage.setItem('llamina.settings', text)", SETTINGS)
        page.reload()
        page.wait_for_selector("body[data-ready]")
        talk(page)
        for size, (width, height) in SIZES.items():
            for theme in ("light", "dark"):
                page.set_viewport_size({"width": width, "height": height})
                page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
                page.evaluate("() => (document.getElementById('scroller').scrollTop = 0)")
                page.mouse.move(width - 40, height // 2)
                page.wait_for_timeout(300)
                page.screenshot(path=FOLDER / f"page-{size}-{theme}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
