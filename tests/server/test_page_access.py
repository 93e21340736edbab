"""The page for everyone: keyboard alone, screen readers, a phone, both themes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from browser import PHONE, Tab, scripted, spoken, violations
from live_server import Live, Scripted

ANSWER = """## Title

Text with `code`, a [link](https://example.com) and $x^2$.

| a | b |
| --- | --- |
| 1 | 2 |

```python
print("a long line " * 20, "a long line " * 20, "a long line " * 20)  # wider than a phone is, so it has to scroll
```
"""


@pytest.fixture
def model(stage: Live) -> Scripted:
    return scripted(stage, "scripted", spoken(ANSWER, "Some reasoning.", logprobs=True))


def start(open_tab: Callable[..., Tab], stage: Live, **options: Any) -> Tab:
    settings = json.dumps({"logprobs": True})
    return open_tab(stage, kept={"llamina.model": "scripted", "llamina.settings": settings}, **options)


@pytest.mark.parametrize(("width", "theme"), [("desk", "light"), ("desk", "dark"), ("phone", "dark")])
def test_axe(open_tab: Callable[..., Tab], stage: Live, model: Scripted, width: str, theme: str) -> None:
    """The empty page, a conversation with everything in it, tokens, settings, a dialog: no serious violation."""
    options: dict[str, Any] = {"viewport": PHONE, "has_touch": True} if width == "phone" else {}
    tab = start(open_tab, stage, color_scheme=theme, bypass_csp=True, reduced_motion="reduce", **options)
    assert violations(tab) == []
    tab.ask("Everything, please")
    tab.again()
    tab.page.evaluate("() => document.querySelectorAll('.message details').forEach((d) => (d.open = true))")
    assert violations(tab) == []
    tab.press("Show tokens with their probabilities")
    tab.page.locator(".token").first.focus()
    assert violations(tab) == []
    tab.setting("Temperature").fill("-3")
    assert violations(tab) == []
    tab.page.keyboard.press("Escape")
    if width == "phone":
        tab.page.click("#open-sidebar")
        tab.page.wait_for_function("() => document.getElementById('sidebar').getBoundingClientRect().left === 0")
        assert violations(tab) == []


def test_themes(open_tab: Callable[..., Tab], stage: Live, model: Scripted) -> None:
    tab = start(open_tab, stage, color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(ground)
    tab.page.emulate_media(color_scheme="light")
    tab.page.wait_for_function("() => document.documentElement.dataset.theme === 'light'")
    light = tab.page.evaluate(ground)
    assert light != dark
    tab.page.click("#toggle-theme")
    assert tab.page.evaluate(ground) == dark
    tab.page.reload()
    tab.page.wait_for_selector("body[data-ready]")
    assert tab.page.evaluate(ground) == dark, "the choice is kept"
    tab.setting("Theme").select_option("system")
    assert tab.page.evaluate(ground) == light


def test_phone(open_tab: Callable[..., Tab], stage: Live, model: Scripted) -> None:
    """At 390 px nothing is cut off, and the list of conversations slides over the page."""
    tab = start(open_tab, stage, viewport=PHONE, has_touch=True)
    tab.ask("Everything, please")
    assert tab.page.evaluate("() => document.documentElement.scrollWidth") == 390
    wide = tab.page.evaluate(
        """() => [...document.querySelectorAll(".top *, .bottom *, .bubble, .block, .message-foot *")]
          .filter((e) => e.getClientRects().length && !e.closest("pre, .hidden"))
          .filter((e) => e.getBoundingClientRect().right > 391)
          .map((e) => e.outerHTML.slice(0, 100))"""
    )
    assert wide == []
    assert tab.page.evaluate("() => { const p = document.querySelector('pre'); return p.scrollWidth > p.clientWidth; }")
    assert not tab.page.locator("#new").is_visible()
    tab.page.click("#open-sidebar")
    tab.page.locator("#conversations a").first.wait_for(state="visible")
    assert tab.page.evaluate("() => document.getElementById('main').inert")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_function("() => document.getElementById('sidebar').inert")
    assert tab.page.evaluate("() => document.activeElement.id") == "open-sidebar"
    tab.page.click("#open-sidebar")
    tab.page.click("#new")
    assert tab.texts() == []
    small = tab.page.evaluate(
        """() => [...document.querySelectorAll(".top button, .composer button")].filter((b) => b.offsetWidth)
          .filter((b) => b.offsetWidth < 32 || b.offsetHeight < 32).length"""
    )
    assert small == 0, "buttons are large enough for a finger"


def test_keyboard_alone(open_tab: Callable[..., Tab], stage: Live, model: Scripted) -> None:
    """Ask, stop, edit, go between versions, search, open, settings, help: without a pointer."""
    tab = start(open_tab, stage)
    keys, page = tab.page.keyboard, tab.page
    active = "() => document.activeElement.id"
    assert page.evaluate(active) == "input"
    keys.type("First line")
    keys.press("Shift+Enter")
    keys.type("second line")
    keys.press("Control+Enter")
    page.wait_for_selector(".message-user")
    tab.finish()
    assert tab.texts("user") == ["First line\nsecond line"]
    keys.press("ArrowUp")
    page.wait_for_selector(".editor")
    keys.press("Control+A")
    keys.type("Edited")
    keys.press("Control+Enter")
    page.wait_for_selector(".branch-at")
    tab.finish()
    assert tab.texts("user") == ["Edited"]
    keys.press("Alt+ArrowLeft")
    page.wait_for_selector("text=second line")
    assert page.evaluate("() => document.activeElement.classList.contains('message')")
    keys.press("Alt+ArrowRight")
    page.wait_for_selector("text=Edited")
    model.chunks = spoken("Half of it")[:1]
    keys.press("Control+Shift+O")
    assert page.evaluate(active) == "input" and tab.texts() == []
    keys.type("Slow")
    keys.press("Enter")
    page.wait_for_selector("#stop:visible")
    page.wait_for_selector("text=Half")
    keys.press("Escape")
    page.wait_for_selector("text=Stopped.")
    keys.press("Control+k")
    assert page.evaluate(active) == "search"
    keys.type("First")
    page.wait_for_function("() => document.querySelectorAll('.conversation').length === 1")
    keys.press("ArrowDown")
    keys.press("Enter")
    page.wait_for_selector("text=Edited")
    keys.press("Control+,")
    assert page.locator("#settings").is_visible()
    keys.press("Escape")
    assert not page.locator("#settings").is_visible()
    keys.press("Control+/")
    assert page.locator("#keys").is_visible()
    keys.press("Escape")
    reached = set()
    page.locator("#new").focus()
    for _ in range(60):
        keys.press("Tab")
        reached.add(
            page.evaluate("() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id")
        )
    assert {"Import", "Model", "Settings", "Copy text", "Edit", "Answer again", "Message", "Attach files"} <= reached


def test_screen_reader(open_tab: Callable[..., Tab], stage: Live, model: Scripted) -> None:
    """Messages have headings, an answer is said once it is whole, and it is busy until then."""
    tab = start(open_tab, stage)
    model.chunks = spoken("Half of it")[:1]
    tab.ask("hi", wait=False)
    tab.page.wait_for_selector(".message-assistant[aria-busy=true] >> text=Half")
    assert tab.page.locator("#status").text_content() == ""
    tab.page.click("#stop")
    tab.finish()
    model.chunks = spoken("All of it.")
    tab.press("Answer again")
    tab.page.wait_for_function("() => document.getElementById('status').textContent.includes('All of it.')")
    assert tab.page.get_by_role("heading", name="You").count() == 1
    assert tab.page.get_by_role("heading", name="scripted").count() == 1
    assert tab.page.get_by_role("meter", name="Context: 10 of 4,096 tokens").count() == 1
