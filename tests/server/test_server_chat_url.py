"""`llamina chat --url`: a conversation with a server."""

from pathlib import Path

import pytest
from live_server import Live, Scripted, done, said

from llamina.errors import LlaminaError, SnapshotError
from llamina.repl.remote import RemotePartner
from llamina.server.model.frames import CallDelta

QUESTION = [{"role": "user", "content": "Say hello."}]


def test_an_answer_streams_with_its_figures(live: Live) -> None:
    partner = RemotePartner(f"{live.url}/v1/", "smollm2")
    reply = partner.answer(QUESTION, {"temperature": 0, "max_tokens": 12})
    text = "".join(piece.text for piece in reply)
    assert text and reply.message() == {"role": "assistant", "content": text}
    figures = reply.figures()
    assert figures.prompt_tokens > 5 and 1 < figures.completion_tokens <= 12
    assert figures.first_token_seconds is not None and figures.rate is not None
    assert {"smollm2", "stories"} <= {*partner.models()}
    partner.use("stories")
    assert partner.name == "stories"
    partner.close()


def test_reasoning_and_calls(live: Live) -> None:
    call = [said(calls=[CallDelta(0, "c1", "add")]), said(calls=[CallDelta(0, arguments='{"a": 1}')])]
    live.adopt("thinks", lambda: Scripted([said(reasoning="hm"), said(text="yes"), *call, done()]))
    reply = RemotePartner(f"{live.url}/v1", "thinks").answer(QUESTION, {})
    assert [(piece.text, piece.reasoning) for piece in reply] == [("", "hm"), ("yes", "")]
    message = reply.message()
    assert message["reasoning_content"] == "hm"
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}


def test_stopping_cancels_on_the_server(live: Live) -> None:
    reply = RemotePartner(f"{live.url}/v1", "stories").answer(QUESTION, {"max_tokens": 400, "ignore_eos": True})
    with pytest.raises(LlaminaError, match="chat template"):  # stories260K has none
        list(reply)
    reply = RemotePartner(f"{live.url}/v1", "smollm2").answer(QUESTION, {"max_tokens": 1000, "ignore_eos": True})
    for _ in reply:
        reply.stop()
    assert reply.figures().finish_reason == "cancelled"


def test_what_goes_wrong_is_told(live: Live, tmp_path: Path) -> None:
    with pytest.raises(LlaminaError, match="is the server there"):
        RemotePartner("http://127.0.0.1:9/v1")
    with pytest.raises(LlaminaError, match="has no model 'nobody': there are"):
        RemotePartner(f"{live.url}/v1", "nobody")
    partner = RemotePartner(f"{live.url}/v1", "smollm2")
    with pytest.raises(LlaminaError, match="400"):
        list(partner.answer(QUESTION, {"temperature": -7}))
    (tmp_path / "snapshot").write_bytes(b"LLAMINA\x1a")
    with pytest.raises(SnapshotError, match="without --url"):
        partner.load(tmp_path / "snapshot")
