"""How a notebook shows answers: Markdown, with nothing of the model's own that a browser would run or load."""

import re
from pathlib import Path

import pytest

from llamina.chat import ToolCall
from llamina.engine import ChatCompletion, Completion, Usage

KNOWN = r"p|a|em|strong|code|pre|h\d|ul|ol|li|blockquote|hr|br|table|thead|tbody|tr|th|td|small"
USAGE = Usage(3, 5, 0.1, 0.5)
VECTORS = (Path(__file__).parents[1] / "server" / "xss_vectors.txt").read_text(encoding="utf-8").splitlines()


def shown(text: str, **fields: object) -> str:
    return Completion(text, [1], "stop", USAGE, **fields)._repr_html_()  # type: ignore[arg-type]


def test_an_answer_is_markdown() -> None:
    found = shown("# Title\n\n**bold** and `a < b`\n\n```python\nif a < b:\n```\n\n| a |\n| - |\n| 1 |\n")
    assert "<h1>Title</h1>" in found and "<strong>bold</strong>" in found and "<table>" in found
    assert "<code>a &lt; b</code>" in found and "if a &lt; b:" in found
    assert "<small>5 tokens, 8.0 tokens/s</small>" in found


def test_a_chat_has_its_reasoning_and_calls() -> None:
    call = ToolCall("1", "add<b>", '{"a": "<i>"}')
    answer = ChatCompletion("yes", [1], "length", USAGE, reasoning="hm **so**", tool_calls=[call])
    found = answer._repr_html_()
    assert "<details><summary>Reasoning</summary><p>hm <strong>so</strong></p>" in found
    assert "<pre>add&lt;b&gt;({&quot;a&quot;: &quot;&lt;i&gt;&quot;})</pre>" in found and "ended by length" in found


def test_other_answers_follow() -> None:
    assert shown("one", alternatives=[Completion("two", [1], "stop", USAGE)]).count("<hr>") == 1


@pytest.mark.parametrize("text", [*filter(None, VECTORS), "![x](http://evil.example/?q=1)", "[x](javascript:alert(1))"])
def test_what_is_hostile_is_text(text: str) -> None:
    """No tag but Markdown's, no attribute but a link's, and no address that runs or loads something."""
    found = shown(text)
    for name, attributes in re.findall(r"<(\w+)((?:\s[^<>]*)?)>", found):
        assert re.fullmatch(KNOWN, name), found
        assert re.fullmatch(r'(?: (?:href|title|class|start|style)="[^"]*")*', attributes.rstrip(" /")), found
        assert name != "a" or not re.search(r'href="\s*(?:javascript|vbscript|data|file):', attributes, re.IGNORECASE)
