"""Answers as HTML, for notebooks. What a model writes is hostile: nothing of it is markup of its own."""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamina.engine.tasks.completion import Completion


def html_of(answer: "Completion") -> str:
    """An answer: its reasoning folded, its text as Markdown, its calls of tools, and how fast it came."""
    return "\n<hr>\n".join("\n".join(_parts(each)) for each in (answer, *answer.alternatives))


def _parts(answer: "Completion") -> Iterator[str]:
    if reasoning := getattr(answer, "reasoning", ""):
        yield f"<details><summary>Reasoning</summary>{_markdown(reasoning)}</details>"
    if answer.text:
        yield _markdown(answer.text)
    for call in getattr(answer, "tool_calls", ()):
        yield f"<pre>{escape(call.name)}({escape(call.arguments)})</pre>"
    usage = answer.usage
    rate = f", {usage.completion_rate:.1f} tokens/s" if usage.completion_tokens > 1 else ""
    reason = f", ended by {answer.finish_reason}" if answer.finish_reason != "stop" else ""
    yield f"<small>{usage.completion_tokens} tokens{rate}{reason}</small>"


def _markdown(text: str) -> str:
    """Markdown as HTML. Tags are shown as text, pictures as links: nothing is loaded, and nothing runs."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text))
