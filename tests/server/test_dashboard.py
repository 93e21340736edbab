"""The dashboard in a browser: live numbers of real models, and a request that is cancelled there."""

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from browser import PHONE, Tab, violations
from live_server import Live, wait_for

LONG = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0}


def tile(tab: Tab, title: str) -> str:
    return str(tab.page.locator(".tile", has=tab.page.get_by_role("heading", name=title, exact=True)).inner_text())


def start(open_tab: Callable[..., Tab], live: Live, **options: Any) -> Tab:
    tab = open_tab(live, **options)
    tab.open("/dashboard")
    tab.page.wait_for_selector("#state[data-live=true]")
    return tab


def test_numbers(open_tab: Callable[..., Tab], live: Live) -> None:
    """What a request did is in the plots a moment later, for all models and for its own alone."""
    tab = start(open_tab, live)
    assert tab.page.locator("#model option").all_inner_texts() == ["All models", *live.models.entries]
    for _ in range(2):
        live.post("/v1/completions", LONG)
    assert wait_for(lambda: tile(tab, "First token").split("\n")[1].endswith("s"))
    assert "median" in tile(tab, "Each further token") and "95 %" in tile(tab, "Each further token")
    assert tab.page.get_by_role("img", name="Generation: tokens/s").count() == 1
    drawn = tab.page.locator(".tile .line-0").first.get_attribute("d")
    assert drawn is not None and drawn.startswith("M") and "L" in drawn
    assert " MB" in tile(tab, "Memory")
    tab.page.select_option("#model", "smollm2")
    tab.page.select_option("#model", "stories")
    assert wait_for(lambda: tile(tab, "First token").split("\n")[1].endswith("s"))
    models = tab.page.locator("#models").inner_text()
    assert "smollm2" in models and "ready" in models


def test_cancel(open_tab: Callable[..., Tab], live: Live) -> None:
    tab = start(open_tab, live)
    answers: list[httpx.Response] = []
    body = LONG | {"model": "smollm2", "max_tokens": 60_000, "context_shift": True}
    asking = threading.Thread(target=lambda: answers.append(live.post("/v1/completions", body)))
    asking.start()
    button = tab.page.get_by_role("button", name="Cancel request").first
    row = tab.page.locator("#requests tr").first
    button.wait_for()
    assert "smollm2" in row.inner_text() and "of 60,000" in row.inner_text()
    button.click()
    asking.join(20)
    assert answers[0].json()["usage"]["completion_tokens"] < 60_000
    assert wait_for(lambda: tab.page.locator("#requests").inner_text().strip() == "None.")
    assert wait_for(lambda: live.idle("smollm2"))
    assert httpx.delete(f"{live.url}/dashboard/requests/smollm2/999999").status_code == 404


def test_percentiles(open_tab: Callable[..., Tab], live: Live) -> None:
    """Numbers are right: percentiles between bounds, rates by time, several models as one."""
    tab = start(open_tab, live)
    found = tab.page.evaluate(
        """async () => {
          const { History, combined, percentile } = await import("./static/js/history.js");
          const histogram = (counts, total = 0) => ({ bounds: [1, 2, 4], counts, total });
          const stats = (n) => ({
            steps: n, prompt_tokens: 10 * n, cached_tokens: 30 * n, generated_tokens: 50 * n, preemptions: 0,
            requests: { stop: n }, gauges: { pages: 10, pages_used: 5, pages_kept: 1 },
            memory: { resident: 7, available: 100 },
            histograms: {
              batch_sequences: histogram([0, n, 0, 0], 2 * n),
              time_to_first_token_seconds: histogram([n, n, 0, 0]),
              inter_token_seconds: histogram([0, 0, 4 * n, 0]),
            },
          });
          const history = new History();
          history.add(100, stats(1), []);
          history.add(102, stats(3), [{ state: "running" }, { state: "waiting" }, { state: "running" }]);
          const both = combined([stats(1), stats(2)]);
          return {
            halves: [percentile(histogram([2, 2, 0, 0]), 0.5), percentile(histogram([0, 4, 0, 0]), 0.25), percentile(histogram([0, 0, 0, 0]), 0.5)],
            above: percentile(histogram([0, 0, 0, 3]), 0.5),
            point: history.points[1],
            both: [both.generated_tokens, both.gauges.pages, both.histograms.batch_sequences, both.memory.available, both.requests.stop],
          };
        }"""  # noqa: E501
    )
    assert found["halves"] == [1, 1.25, None] and found["above"] == 4
    point = found["point"]
    assert point["generated"] == 50 and point["prompt"] == 10 and point["ended"] == 1 and point["hits"] == 75
    assert point["batch"] == 2 and point["pages"] == 50 and point["running"] == 2 and point["waiting"] == 1
    assert point["firstMedian"] == 1 and point["eachMedian"] == 3
    assert found["both"] == [150, 20, {"bounds": [1, 2, 4], "counts": [0, 3, 0, 0], "total": 6}, 100, 3]


def test_a_stream_that_ends_is_begun_again(open_tab: Callable[..., Tab], live: Live) -> None:
    tab = start(open_tab, live)
    tab.page.route(
        "**/dashboard/events", lambda route: route.fulfill(status=200, content_type="text/event-stream", body="")
    )
    tab.open("/dashboard")
    assert tab.page.locator("#state").inner_text() == "connecting…"
    tab.page.unroute("**/dashboard/events")
    tab.page.wait_for_selector("#state[data-live=true]")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phone_and_access(open_tab: Callable[..., Tab], live: Live, theme: str) -> None:
    tab = start(open_tab, live, viewport=PHONE, color_scheme=theme, bypass_csp=True)
    tab.page.wait_for_selector(".tile-note span")
    assert tab.page.evaluate("() => document.documentElement.scrollWidth") == 390
    assert violations(tab) == []
    tab.page.set_viewport_size({"width": 2560, "height": 1440})
    assert tab.page.evaluate("() => parseFloat(getComputedStyle(document.body).fontSize)") > 20, "a wall is far away"
    assert violations(tab) == []
