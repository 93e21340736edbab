"""A real browser on the server's page. What it logs as an error, or asks of another machine, fails the test."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from live_server import Live, Scripted, done, said

import skips
from llamina.server.model.frames import Chunk, Logprob

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable", "chrome")
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 860}
TIMEOUT = 20_000


@contextmanager
def launched() -> Iterator[Any]:
    """Chromium without a window. The test skips if there is none, or no Playwright."""
    playwright = skips.import_peer("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        skips.skip("peer", "no Chromium: install it, or name it in CHROMIUM")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A tab with the page of a server, in a profile of its own; `kept` is what its localStorage has."""

    def __init__(
        self, browser: Any, url: str, kept: dict[str, str] | None = None, script: str = "", **options: Any
    ) -> None:
        self.url, self.errors, self.outside = url, list[str](), list[str]()
        items = [{"name": name, "value": value} for name, value in (kept or {}).items()]
        state = {"cookies": [], "origins": [{"origin": url, "localStorage": items}]}
        self.context = browser.new_context(**{"viewport": DESK, "storage_state": state} | options)
        self.context.set_default_timeout(TIMEOUT)
        self.context.route(lambda asked: not asked.startswith((url, "data:", "blob:")), self._refuse)
        self.page = self.context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        if script:
            self.page.add_init_script(script)
        self.open()

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def _refuse(self, route: Any) -> None:
        self.outside.append(route.request.url)
        route.abort()

    def open(self, path: str = "/") -> None:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("body[data-ready]")

    def close(self) -> None:
        """Raises if the browser logged an error or asked another machine for anything."""
        self.context.close()
        assert not self.errors, self.errors
        assert not self.outside, self.outside

    # ---- what a person does --------------------------------------------------------------------------------

    def ask(self, text: str, wait: bool = True) -> None:
        """Send a message; its answer has ended when this returns, unless `wait` is false."""
        count = self.page.locator(".message-user").count()
        self.page.fill("#input", text)
        self.page.click("#send")
        self.page.wait_for_function("n => document.querySelectorAll('.message-user').length > n", arg=count)
        if wait:
            self.finish()

    def finish(self) -> None:
        """Wait until no answer is being made."""
        self.page.wait_for_selector("#send", state="visible")
        self.page.wait_for_selector(".message:last-child:not(.message-user):not([aria-busy=true]) .message-foot button")

    def again(self) -> None:
        """Ask for another answer; it has ended when this returns."""
        with self.page.expect_request("**/v1/chat/completions"):
            self.press("Answer again")
        self.finish()

    def texts(self, role: str = "") -> list[str]:
        """The texts of the shown messages."""
        shown = ".bubble" if role == "user" else ".markdown" if role == "assistant" else ".bubble, .markdown"
        return [text.strip() for text in self.page.locator(shown).all_inner_texts()]

    def press(self, label: str, within: str = "body", nth: int = -1) -> None:
        """Click the last button of a name, or another of them."""
        buttons = self.page.locator(f'{within} button[aria-label="{label}"]')
        buttons.nth(nth if nth >= 0 else buttons.count() - 1).click()

    def setting(self, label: str) -> Any:
        """A field of the settings, whose panel and section are opened."""
        if not self.page.locator("#settings").is_visible():
            self.page.click("#open-settings")
        self.page.evaluate("document.querySelectorAll('#settings details').forEach(d => (d.open = true))")
        return self.page.locator("#settings").get_by_label(label, exact=False).first


def spoken(text: str, reasoning: str = "", logprobs: bool = False) -> list[Chunk]:
    """Chunks of a few letters that come to a text."""
    pieces = [said(reasoning=piece) for piece in re.findall(r"\s*\S{1,6}|\s+$", reasoning)]
    for piece in re.findall(r"\s*\S{1,6}|\s+$", text):
        likely = Logprob(1, piece.encode(), -0.2)
        entry = Logprob(1, piece.encode(), -0.2, [likely, Logprob(2, b"<else>", -1.9)])
        pieces.append(said(text=piece, logprobs=[entry] if logprobs else None))
    return [*pieces, done(tokens=len(pieces))]


def scripted(live: Live, id: str, chunks: list[Chunk], **senses: bool) -> Scripted:
    """A model of a server that says these chunks; it can be given others later."""
    model = live.adopt(id, lambda: Scripted(chunks, **senses))
    assert isinstance(model, Scripted)
    return model


def violations(tab: Tab) -> list[str]:
    """What axe-core finds serious or critical."""
    axe = skips.import_peer("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(tab.page).response["violations"]
    grave = [v for v in found if v["impact"] in ("serious", "critical")]
    return [f"{v['id']}: {node['html'][:200]} {node['failureSummary']}" for v in grave for node in v["nodes"]]
