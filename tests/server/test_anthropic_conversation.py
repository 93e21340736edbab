"""Anthropic's blocks as messages of a chat template."""

from typing import Any

import msgspec
import pytest

from llamina.server.anthropic.blocks import Message
from llamina.server.anthropic.conversation import Conversation, conversation, hide
from llamina.server.errors import ApiError


def translated(*messages: dict[str, Any], system: str = "") -> Conversation:
    return conversation(system, msgspec.convert(list(messages), list[Message]), 100)


def test_turns_of_one_role_are_one() -> None:
    found = translated(
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
        system="s",
    )
    assert [(m["role"], m["content"]) for m in found.messages] == [
        ("system", "s"),
        ("user", "a\n\nb\nc"),
        ("assistant", "d"),
        ("user", "e"),
    ]
    assert found.prefill == ""


def test_system_messages_stay_where_they_are() -> None:
    found = translated(
        {"role": "user", "content": "a"}, {"role": "system", "content": "s"}, {"role": "user", "content": "b"}
    )
    assert [m["role"] for m in found.messages] == ["user", "system", "user"]


def test_calls_and_results() -> None:
    used = {"type": "tool_use", "id": "toolu_abcdefghi", "name": "f", "input": {"x": [1, "ä"]}}
    foreign = {"type": "tool_use", "id": "other", "name": "g", "input": {}}
    results = [
        {"type": "tool_result", "tool_use_id": "other", "content": "no", "is_error": True},
        {"type": "tool_result", "tool_use_id": "toolu_abcdefghi", "content": [{"type": "text", "text": "1"}]},
        {"type": "text", "text": "and now?"},
    ]
    found = translated(
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "text", "text": "calling"}, used, foreign]},
        {"role": "user", "content": results},
    )
    call, failed, worked, text = found.messages[1:]
    assert call["content"] == "calling"
    assert [c["id"] for c in call["tool_calls"]] == ["abcdefghi", "other"]
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":[1,"ä"]}'}
    assert failed == {"role": "tool", "content": "Error: no", "tool_call_id": "other", "name": "g"}
    assert worked == {"role": "tool", "content": "1", "tool_call_id": "abcdefghi", "name": "f"}
    assert text == {"role": "user", "content": "and now?"}


def test_thinking() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "anything"},
        {"type": "thinking", "thinking": "", "signature": hide("häm")},
        {"type": "redacted_thinking", "data": "encrypted"},
        {"type": "text", "text": "so"},
    ]
    found = translated(
        {"role": "user", "content": "?"}, {"role": "assistant", "content": blocks}, {"role": "user", "content": "!"}
    )
    assert found.messages[1] == {"role": "assistant", "content": "so", "reasoning_content": "hm\nhäm"}
    damaged = [{"type": "thinking", "thinking": "", "signature": "thinking:!"}]
    with pytest.raises(ApiError, match="damaged"):
        translated({"role": "user", "content": "?"}, {"role": "assistant", "content": damaged})


def test_documents_are_text() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "words"}
    parts = {"type": "content", "content": [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}]}
    found = translated(
        {
            "role": "user",
            "content": [
                {"type": "document", "source": plain, "title": "T", "context": "C"},
                {"type": "document", "source": parts},
                {
                    "type": "search_result",
                    "source": "where",
                    "title": "what",
                    "content": [{"type": "text", "text": "r"}],
                },
            ],
        }
    )
    assert found.messages[0]["content"] == "T\nC\nwords\np\nq\nwhat\nwhere\nr"


def test_prefill() -> None:
    found = translated({"role": "user", "content": "a"}, {"role": "assistant", "content": "The best is ("})
    assert (len(found.messages), found.prefill) == (1, "The best is (")
