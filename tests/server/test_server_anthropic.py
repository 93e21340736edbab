"""Anthropic's official client against a live server: messages, streams, counts, cancelling."""

import asyncio
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message, MessageTokensCount, TextBlock
from anthropic_objects import GREEDY, QUESTION, official_client, raw_events, strict
from live_server import PATIENCE, Live, Scripted, done, said, wait_for


@pytest.fixture(scope="module")
def client(live: Live) -> anthropic.Anthropic:
    return official_client(live)


def test_message(live: Live) -> None:
    body = {"model": "smollm2", "max_tokens": 40, "messages": QUESTION, "system": "Be brief.", **GREEDY}
    response = live.post("/v1/messages", body, headers={"anthropic-version": "2023-06-01", "x-api-key": "none"})
    message = strict(Message, response.content)
    assert response.status_code == 200 and response.headers["request-id"].startswith("req_")
    assert isinstance(message.content[0], TextBlock) and "Paris" in message.content[0].text
    assert (message.stop_reason, message.stop_sequence, message.model) == ("end_turn", None, "smollm2")
    assert message.usage.output_tokens > 3


def test_system_as_blocks_is_the_same_prompt(client: anthropic.Anthropic) -> None:
    text = "Be brief."
    blocks = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    counts = [
        client.messages.count_tokens(model="smollm2", messages=QUESTION, system=system).input_tokens
        for system in (text, blocks)
    ]
    assert counts[0] == counts[1] > client.messages.count_tokens(model="smollm2", messages=QUESTION).input_tokens - 20


def test_beta_client(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(
        model="smollm2",
        max_tokens=5,
        messages=QUESTION,
        betas=["context-management-2025-06-27"],
        metadata={"user_id": "someone"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        extra_body=GREEDY,
    )
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 5


def test_stream_says_the_same(client: anthropic.Anthropic) -> None:
    prompt: dict[str, Any] = {"model": "smollm2", "messages": QUESTION, "system": "Be brief."}
    asked: dict[str, Any] = prompt | {"max_tokens": 30, "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 2 and "".join(pieces) == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    total = [m.usage.input_tokens + (m.usage.cache_read_input_tokens or 0) for m in (whole, final)]
    assert total[0] == total[1] == client.messages.count_tokens(**prompt).input_tokens


def test_raw_stream_in_order(live: Live) -> None:
    events = raw_events(live, {"model": "smollm2", "max_tokens": 5, "messages": QUESTION, **GREEDY})
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[0].message.content == [] and events[0].message.stop_reason is None
    assert events[-2].delta.stop_reason == "max_tokens" and events[-2].usage.output_tokens == 5


async def _ask(live: Live) -> str:
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 5, "messages": QUESTION, "extra_body": GREEDY}
    client = anthropic.AsyncAnthropic(base_url=live.url, api_key="none", max_retries=0)
    async with client, client.messages.stream(**asked) as stream:
        return "".join([text async for text in stream.text_stream])


def test_async_client(live: Live) -> None:
    assert asyncio.run(_ask(live))


def test_count_tokens(live: Live) -> None:
    response = live.post("/v1/messages/count_tokens", {"model": "smollm2", "messages": QUESTION})
    assert strict(MessageTokensCount, response.content).input_tokens > 10
    assert response.headers["request-id"].startswith("req_")
    begun = [*QUESTION, {"role": "assistant", "content": "The capital"}]
    more = live.post("/v1/messages/count_tokens", {"model": "smollm2", "messages": begun}).json()
    assert more["input_tokens"] == response.json()["input_tokens"] + 2


def test_prefill_goes_on(client: anthropic.Anthropic) -> None:
    begun = [{"role": "user", "content": "Count to ten: "}, {"role": "assistant", "content": "1, 2, 3,"}]
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 40, "messages": begun, "extra_body": GREEDY}
    message = client.messages.create(stop_sequences=["nothing", " 7"], **asked)
    assert message.content[0].text == " 4, 5, 6,"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " 7")


def test_prompt_alone(client: anthropic.Anthropic) -> None:
    messages = [{"role": "user", "content": "A prompt that is computed and not answered."}]
    warm = client.messages.create(model="smollm2", max_tokens=0, messages=messages)
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ([], "max_tokens", 0)
    assert warm.usage.input_tokens > 10
    again = client.messages.create(model="smollm2", max_tokens=1, messages=messages)
    assert (again.usage.cache_read_input_tokens or 0) > 16


def test_context_is_full(live: Live) -> None:
    class Small(Scripted):
        """Its context ends after two tokens."""

    live.adopt("small", lambda: Small([said(text="a"), said(text="b"), done("length")]))
    body = {"model": "small", "max_tokens": 100, "messages": QUESTION}
    assert live.post("/v1/messages", body).json()["stop_reason"] == "model_context_window_exceeded"
    assert live.post("/v1/messages", body | {"max_tokens": 2}).json()["stop_reason"] == "max_tokens"


# ---- cancelling ------------------------------------------------------------------------------------------


def test_closed_stream_is_cancelled(client: anthropic.Anthropic, live: Live) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "max_tokens": 1500, "messages": QUESTION}
    with client.messages.stream(**asked, extra_body={"temperature": 1.5}) as stream:
        next(iter(stream.text_stream))
        assert not live.idle("smollm2")
    assert wait_for(lambda: live.idle("smollm2"))
    entry = live.models.entries["smollm2"]
    assert wait_for(lambda: entry.users == 0)


def test_closed_in_the_middle_of_a_prompt(live: Live) -> None:
    long = "".join(f"{number} " for number in range(480))
    body = {"model": "smollm2", "max_tokens": 5, "messages": [{"role": "user", "content": long}], "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/messages", json=body, timeout=PATIENCE) as response:
        assert response.status_code == 200 and b"message_start" in next(response.iter_bytes())
        core = live.engines["smollm2"].core
        assert wait_for(lambda: bool(core.running))  # it is told of before it is begun
        (sequence,) = core.running
    assert wait_for(lambda: live.idle("smollm2"))
    assert sequence.finish_reason == "cancelled" and not sequence.generated
