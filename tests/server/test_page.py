"""The page in a browser, with real models: what people do with it."""

import re
from collections.abc import Callable

import pytest
from browser import Tab
from live_server import Live, wait_for

WHAT = "What is the capital of Japan? Answer in one word."


@pytest.fixture
def tab(open_tab: Callable[..., Tab], live: Live) -> Tab:
    """A tab on SmolLM2, which answers greedily and in brief."""
    return open_tab(
        live, kept={"llamina.settings": '{"temperature": "0", "max_tokens": "40"}', "llamina.model": "smollm2"}
    )


def test_talk(tab: Tab) -> None:
    """Type, see tokens arrive, ask further, reload, and find it all again."""
    page = tab.page
    tab.setting("Longest answer").fill("300")
    page.keyboard.press("Tab")
    tab.setting("Ignore end of text").select_option("on")
    page.keyboard.press("Escape")
    page.evaluate(
        """() => {
          window.lengths = new Set();
          const look = () => lengths.add(document.querySelector(".markdown")?.textContent.length ?? 0);
          new MutationObserver(look).observe(document.getElementById("thread"), { childList: true, subtree: true });
        }"""
    )
    tab.ask("Count from one to ten in words.")
    assert page.evaluate("lengths.size") > 4, "the answer came as a whole"
    answer = tab.texts("assistant")[0]
    assert len(answer) > 10
    stats = page.locator(".stats").inner_text()
    assert "tokens/s" in stats and "first after" in stats
    assert "of 2,048 tokens" in page.locator("#context-text").inner_text()
    tab.ask(WHAT)
    assert len(tab.texts()) == 4
    url, shown = page.url, tab.texts()
    assert "#/c/" in url
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert tab.texts() == shown and page.url == url
    page.click("#new")
    assert tab.texts() == [] and "#/c/" not in page.url
    page.locator("#conversations a").first.click()
    page.wait_for_selector(".message-assistant")
    assert tab.texts() == shown


def test_stop(tab: Tab, live: Live) -> None:
    tab.setting("Longest answer").fill("1500")
    tab.page.keyboard.press("Tab")
    tab.setting("Ignore end of text").select_option("on")
    tab.page.keyboard.press("Escape")
    tab.ask("Tell me a very long story.", wait=False)
    tab.page.wait_for_function("() => document.querySelector('.markdown')?.textContent.length > 20")
    tab.page.keyboard.press("Escape")
    tab.finish()
    assert tab.page.locator(".note").inner_text() == "Stopped."
    assert wait_for(lambda: live.idle("smollm2"))
    assert len(tab.texts("assistant")[0]) > 20
    tab.page.reload()
    tab.page.wait_for_selector(".note")
    assert tab.page.locator(".note").inner_text() == "Stopped."


def test_grammar(tab: Tab) -> None:
    tab.setting("The answer must be").select_option("grammar")
    tab.page.get_by_label("Schema, grammar or expression").fill('root ::= "llama" | "alpaca"')
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.ask("Which animal is this?")
    assert tab.texts("assistant")[0] in ("llama", "alpaca")
    tab.setting("The answer must be").select_option("json_schema")
    area = tab.page.get_by_label("Schema, grammar or expression")
    area.fill('{"type": "object"')
    assert area.get_attribute("aria-invalid") == "true"
    area.fill(
        '{"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": false}'
    )
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.ask("A number, please.")
    assert tab.texts("assistant")[1].replace(" ", "") == '{"n":7}'


def test_switch_model(tab: Tab) -> None:
    tab.page.select_option("#model", "stories")
    assert "tokens of context" in tab.page.locator("#model-facts").inner_text()
    tab.ask("Once upon a time")
    assert tab.page.locator(".message-assistant h2").inner_text() == "stories"
    assert "template" in tab.page.locator(".note-error").inner_text()  # it has none, and is told so by the server
    tab.errors.clear()  # the browser logs that the answer was a 400
    tab.page.select_option("#model", "smollm2")
    tab.again()
    assert tab.page.locator(".message-assistant h2").inner_text() == "smollm2"
    tab.page.reload()
    tab.page.wait_for_selector("body[data-ready]")
    assert tab.page.locator("#model").input_value() == "smollm2"


def test_what_the_server_refuses_is_told(tab: Tab) -> None:
    tab.setting("Order of samplers").fill("nonsense")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.ask("hi")
    assert "nonsense" in tab.page.locator(".note-error").inner_text()
    tab.errors.clear()  # the browser logs that the answer was a 400
    tab.setting("Order of samplers").fill("")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.press("Answer again")
    tab.page.locator(".message-assistant .markdown").filter(has_text=re.compile(r"\w")).last.wait_for()
    tab.finish()
    assert tab.page.locator(".note-error:visible").count() == 0 and tab.texts("assistant")[0]
