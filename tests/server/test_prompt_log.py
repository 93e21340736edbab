"""Prompts and answers are in the log if that is asked for, and only then."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from live_server import Scripted, done, said, serving, wait_for

from llamina.server.config import Config
from llamina.server.logs import JsonLines
from llamina.server.model.frames import CallDelta

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a secret question"}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_log_prompts(asked: bool, stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "llamina")
    call = said(calls=[CallDelta(0, "a", "f"), CallDelta(0, arguments="{}")])
    chunks = [said(reasoning="Hm. "), said(text="a secret "), said(text="answer"), call, done()]
    with serving({}, Config(data=str(tmp_path), log_prompts=asked)) as live:
        live.adopt("scripted", lambda: Scripted(chunks))
        live.post("/v1/chat/completions", CHAT | {"stream": stream}, headers={"x-request-id": "mine"})
        assert wait_for(lambda: any(r.name == "llamina.requests" for r in caplog.records))
    assert ("secret" in caplog.text) == asked
    lines: list[dict[str, Any]] = [
        json.loads(JsonLines().format(r)) for r in caplog.records if r.name == "llamina.prompts"
    ]
    if asked:
        question, answer = lines
        assert question["request_id"] == answer["request_id"] == "mine"
        assert question["asked"] == {"messages": CHAT["messages"]}
        assert answer["answered"] == {"index": 0, "text": "Hm. a secret answerf{}", "ended": "stop"}
        assert "mine asked: " in caplog.text and "mine answered: " in caplog.text
