"""The pictures of the page and the dashboard in docs/images: `python tools/screenshots.py URL` of a running server."""

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


WORK = """() => {
  const ask = async (topic) => {
    for (;;) {
      const body = JSON.stringify({ prompt: `A long story about llamas. It begins with ${topic}`, max_tokens: 120 });
      await fetch("v1/completions", { method: "POST", body });
    }
  };
  for (const topic of ["a hum", "a mountain", "wool", "an alpaca", "the rain"]) ask(topic);
}"""


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
        page.evaluate("() => (document.getElementById('scroller').scrollTop = 0)")
        picture(page, "page")
        page.goto(f"{url}/dashboard")
        page.evaluate(WORK)
        page.wait_for_timeout(60_000)
        picture(page, "dashboard")
        browser.close()


def picture(page: Page, name: str) -> None:
    """What a page shows, in both sizes and themes."""
    for size, (width, height) in SIZES.items():
        for theme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
            page.mouse.move(width - 40, height // 2)
            page.wait_for_timeout(300)
            page.screenshot(path=FOLDER / f"{name}-{size}-{theme}.png")


if __name__ == "__main__":
    main(sys.argv[1])
