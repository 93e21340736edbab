"""A model's Markdown in the page: hostile text does nothing, long answers keep frames short, pieces make the whole."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab, scripted, spoken
from live_server import Live, done, said

from llamina.server.model.frames import CallDelta

VECTORS = (Path(__file__).parent / "xss_vectors.txt").read_text(encoding="utf-8").rstrip("\n").split("\n%%\n")
FRAME = 7  # tables laid out: 50 ms, where one takes 7 ms

# What is in the page after a hostile text was shown: everything that is not harmless.
INSPECT = """element => {
  const bad = [];
  const tags = new Set(("p br hr em strong b i u s del ins mark small sub sup kbd abbr code pre a ul ol li dl dt dd " +
    "blockquote h1 h2 h3 h4 h5 h6 table thead tbody tr th td details summary span div button svg use").split(" "));
  const never = ["src", "srcset", "srcdoc", "id", "name", "ping", "action", "background"];
  for (const node of element.querySelectorAll("*")) {
    const name = node.localName;
    const maths = node.namespaceURI.endsWith("MathML");
    if (!maths && !tags.has(name)) bad.push(name);
    for (const { name: key, value } of node.attributes) {
      const harmful =
        key.startsWith("on") ||
        never.includes(key) ||
        (key.endsWith("href") && name !== "use" && !/^(https?:\\/\\/|mailto:)/.test(value)) ||
        (key === "style" && (!maths || /url|position|expression/.test(value))) ||
        (key === "class" && /toast|skip|dialog/.test(value));
      if (harmful) bad.push(`${name} ${key}=${value}`);
    }
  }
  return bad;
}"""
SHOW = """async ([texts, pieces, clean]) => {
  const { StreamedMarkdown } = await import("./static/js/streamed.js");
  const { cleanMarkdown } = await import("./static/js/sanitize.js");
  const shown = async (text) => {
    const element = document.createElement("div");
    element.className = "markdown";
    document.getElementById("thread").append(element);
    document.body.classList.remove("empty");
    const markdown = new StreamedMarkdown(element);
    for (let end = pieces; pieces && end < text.length; end += pieces) {
      markdown.push(text.slice(0, end));
      await new Promise(requestAnimationFrame);
      await new Promise(requestAnimationFrame);
    }
    if (clean) element.append(cleanMarkdown(text));
    else await markdown.finish(text);
    const bad = (INSPECT)(element);
    const html = element.innerHTML;
    element.remove();
    return { text, bad, html };
  };
  return Promise.all(texts.map(shown));
}""".replace("INSPECT", INSPECT)
WATCH = """
window.fired = [];
for (const name of ["alert", "prompt", "confirm", "msgbox"]) window[name] = () => fired.push(name);
"""


@pytest.fixture(scope="module")
def tab(browser: Any, stage: Live) -> Iterator[Tab]:
    """One tab for all tests of this file."""
    scripted(stage, "scripted", spoken("hi"))
    tab = Tab(browser, stage.url, kept={"llamina.model": "scripted"}, script=WATCH)
    yield tab
    tab.close()


def show(tab: Tab, text: str, pieces: int = 0) -> Any:
    """What became of a text: shown at once, or as it comes in pieces of so many characters."""
    return tab.page.evaluate(SHOW, [[text], pieces, False])[0]


def test_vectors_are_hostile(browser: Any) -> None:
    """Without sanitising, the corpus does run scripts: else it would prove nothing."""
    page = browser.new_page()
    fired = page.evaluate(
        """async vectors => {
          let fired = 0;
          window.alert = window.prompt = () => fired++;
          for (const vector of vectors) {
            const element = document.createElement("div");
            document.body.append(element);
            element.innerHTML = vector;
          }
          await new Promise((done) => setTimeout(done, 300));
          return fired;
        }""",
        [vector for vector in VECTORS if "evil.example" not in vector],
    )
    page.close()
    assert len(VECTORS) > 150 and fired >= 10


def test_hostile_text_does_nothing(tab: Tab) -> None:
    shown = tab.page.evaluate(SHOW, [VECTORS, 0, False])
    assert [(each["text"], each["bad"]) for each in shown if each["bad"]] == []
    assert show(tab, "\n\n".join(VECTORS))["bad"] == []
    tab.page.wait_for_timeout(200)  # for handlers that would fire late
    assert tab.page.evaluate("fired") == []


def test_the_sanitiser_alone_suffices(browser: Any, stage: Live) -> None:
    """Markdown lets through no HTML that matters; if it ever did, nothing would come of it either."""
    tab = Tab(browser, stage.url, script=WATCH)
    shown = tab.page.evaluate(SHOW, [VECTORS, 0, True])
    assert [(each["text"], each["bad"]) for each in shown if each["bad"]] == []
    tab.page.wait_for_timeout(200)
    assert tab.page.evaluate("fired") == []
    tab.errors = [
        error for error in tab.errors if "Content Security Policy" not in error
    ]  # what it tells of is blocked
    tab.close()


def test_hostile_text_in_pieces(tab: Tab) -> None:
    """While it streams, text is cut anywhere: `<img src=x onerror=…` is there without its end."""
    for vector in (
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "<svg onload=alert(1)>",
        "<a href='javascript:x'>",
    ):
        assert show(tab, f"Look: {vector} and more", 3)["bad"] == []
    assert tab.page.evaluate("fired") == []


def test_hostile_answer(tab: Tab, stage: Live) -> None:
    """The same through the API: as an answer, as reasoning, as a call, and as the error of a model."""
    hostile = "\n\n".join(vector for vector in VECTORS if "```" not in vector)
    call = CallDelta(0, id="c1", name="<img src=x onerror=alert(1)>")
    arguments = CallDelta(0, arguments="<script>alert(1)</script>")
    chunks = [said(reasoning=hostile), said(text=hostile), said(calls=[call]), said(calls=[arguments]), done()]
    scripted(stage, "scripted", chunks)
    tab.ask("<img src=x onerror=alert(1)>")
    tab.page.evaluate("document.querySelectorAll('.message details').forEach(d => (d.open = true))")
    assert tab.page.evaluate(f"({INSPECT})(document.querySelector('.message-assistant .markdown'))") == []
    assert tab.page.evaluate(f"({INSPECT})(document.querySelector('.reasoning-text'))") == []
    assert tab.page.locator(".calls").inner_text().count("<img src=x onerror=alert(1)>") >= 1
    assert tab.texts("user") == ["<img src=x onerror=alert(1)>"]
    tab.open(tab.page.evaluate("'/' + location.hash"))
    assert tab.page.evaluate("fired") == []
    assert tab.page.title().startswith("<img")


MIXED = """# Llamas

A **llama** hums when it is *content*, `hum()`, [more](https://example.com/llama "title") and ~~less~~.

- one
- two
  - nested with $x^2$

    and a paragraph

1. first
2. second

> quoted
> > twice

| animal | wool |
| :-- | --: |
| llama | 3 |
| alpaca | 9 |

```python
def hum(n: int) -> str:
    return "hm" * n
```

$$\\sum_{i=1}^n i = \\frac{n(n+1)}{2}$$

Setext
------

It costs $5 and $10. See [later][ref] and https://example.com/auto.

- [x] done
- [ ] not yet

```js``` is inline, and so is \\(a+b\\).

[ref]: https://example.com/ref
"""


def test_what_markdown_becomes(tab: Tab) -> None:
    html = show(tab, MIXED)["html"]
    assert "<h1>Llamas</h1>" in html and "<strong>llama</strong>" in html and "<del>less</del>" in html
    assert html.count("<math") == 3 and 'class="tml-display"' in html
    assert '<span class="hljs-keyword">def</span>' in html and '<td align="right">9</td>' in html
    assert "☑ done" in html and "☐ not yet" in html and "$5 and $10" in html
    links = re.findall(r"<a [^>]*>", html)
    assert len(links) == 3 and all('rel="noopener noreferrer nofollow"' in link for link in links)
    assert '<a href="https://example.com/ref"' in html
    assert "<img" not in show(tab, "![a llama](https://example.com/l.png)")["html"]


@pytest.mark.parametrize("pieces", [1, 7, 40])
def test_pieces_make_the_whole(tab: Tab, pieces: int) -> None:
    text = MIXED if pieces > 1 else MIXED[:90]
    assert show(tab, text, pieces)["html"] == show(tab, text)["html"]


def test_closed_blocks_are_left_alone(tab: Tab) -> None:
    """While an answer grows, the elements of blocks before the last are the same ones."""
    kept = tab.page.evaluate(
        """async () => {
          const { StreamedMarkdown } = await import("./static/js/streamed.js");
          const element = document.createElement("div");
          document.body.append(element);
          const markdown = new StreamedMarkdown(element);
          const frames = () => new Promise((done) => setTimeout(done, 120));
          markdown.push("one\\n\\ntwo\\n\\nthree");
          await frames();
          const before = [...element.children];
          markdown.push("one\\n\\ntwo\\n\\nthree\\n\\nfour");
          await frames();
          const after = [...element.children];
          await markdown.finish("one\\n\\ntwo\\n\\nthree\\n\\nfour");
          const same = before[0] === after[0] && before[1] === after[1] && after[0] === element.children[0];
          return [before.length, after.length, same];
        }"""
    )
    assert kept == [3, 4, True]


def mixed_tokens(n: int) -> list[str]:
    """Markdown of every kind, as a model would write it, cut into tokens."""
    pieces = re.findall(r"\s*\S{1,5}", MIXED.partition("[ref]:")[0] * 40)
    return pieces[:n]


LONG = {
    "mixed": mixed_tokens(2000),
    "one table": [
        "| a | b |\n| --- | --- |\n",
        *(f"| cell {i} | `value` |\n" if i % 5 == 0 else " word" for i in range(2000)),
    ],
    "one code block": [
        "```python\n",
        *(f"    total += values[{i}]  # sum\n" if i % 6 == 0 else "x" for i in range(2000)),
    ],
    "one list": [f"\n- item {i}" if i % 8 == 0 else " word" for i in range(2000)],
}


LAY_OUT = """() => {
  const times = Array.from({length: 9}, () => {
    const table = document.createElement("table");
    const start = performance.now();
    for (let i = 0; i < 400; i++) {
      const row = table.insertRow();
      row.insertCell().textContent = `cell ${i}`;
      row.insertCell().append(document.createElement("code"));
    }
    document.body.append(table);
    table.getBoundingClientRect();
    const took = performance.now() - start;
    table.remove();
    return took;
  });
  return Math.min(...times);
}"""


@pytest.mark.parametrize("kind", LONG)
def test_2000_tokens_keep_frames_short(tab: Tab, stage: Live, kind: str) -> None:
    """No task of the page's thread takes more CPU time than a frame, in units of a plain table's layout."""
    unit = tab.page.evaluate(LAY_OUT)
    scripted(stage, "scripted", [*(said(text=piece) for piece in LONG[kind]), done(tokens=2000)])
    tab.page.evaluate("document.getElementById('new').click()")
    browser = tab.context.browser
    browser.start_tracing(page=tab.page, categories=["toplevel", "__metadata"])
    tab.ask("Write at length")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {(e["pid"], e["tid"]) for e in events if e.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [e.get("tdur", 0) / 1000 for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in threads]
    assert len(tasks) > 100 and max(tasks) < FRAME * unit, (unit, sorted(tasks)[-8:])
    assert len(tab.texts("assistant")[0]) > 4000
