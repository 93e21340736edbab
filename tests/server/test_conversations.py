"""`/v1/conversations` through the official client, and what responses read of them and bring to them."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from live_server import Live, Scripted, done, said
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItem, ConversationItemList
from responses_objects import official_client, streamed, strict, strict_response

HELLO: Any = {"type": "message", "role": "user", "content": "hello"}
CALL: Any = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
ITEMS: Any = [
    HELLO,
    {"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
    CALL,
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "42"}]},
]


@pytest.fixture(scope="module")
def client(live: Live) -> openai.OpenAI:
    return official_client(live)


@pytest.fixture
def scripted(live: Live) -> Iterator[Scripted]:
    model = live.adopt("scripted", lambda: Scripted([said(text="yes"), done()]))
    assert isinstance(model, Scripted)
    yield model
    live.models.entries.pop("scripted", None)


def test_made_changed_deleted(client: openai.OpenAI) -> None:
    made = client.conversations.create(items=[HELLO], metadata={"a": "1"})
    strict(Conversation, made.to_dict())
    assert client.conversations.retrieve(made.id) == made and made.metadata == {"a": "1"}
    assert client.conversations.update(made.id, metadata={"b": "2"}).metadata == {"b": "2"}
    gone = client.conversations.delete(made.id)
    assert strict(ConversationDeletedResource, gone.to_dict()).deleted
    for missing in (client.conversations.retrieve, client.conversations.items.list, client.conversations.delete):
        with pytest.raises(openai.NotFoundError):
            missing(made.id)


def test_items(client: openai.OpenAI, live: Live) -> None:
    id = client.conversations.create().id
    empty = httpx.get(f"{live.url}/v1/conversations/{id}/items").json()
    assert strict(ConversationItemList, empty).data == []
    added = client.conversations.items.create(id, items=ITEMS)
    assert strict(ConversationItemList, added.to_dict()).data and not added.has_more
    listed = list(client.conversations.items.list(id, limit=2))
    assert [item.id for item in listed] == [item.id for item in reversed(added.data)], "the newest first, in pages"
    for item in listed:
        strict(ConversationItem, item.to_dict())
        assert client.conversations.items.retrieve(item.id or "", conversation_id=id) == item
    assert client.conversations.items.delete(listed[0].id or "", conversation_id=id).id == id
    assert len(list(client.conversations.items.list(id))) == len(ITEMS) - 1
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(listed[0].id or "", conversation_id=id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.list(id, after=listed[0].id or "")
    with pytest.raises(openai.BadRequestError, match="already"):
        client.conversations.items.create(id, items=[HELLO | {"id": listed[1].id}])


def test_responses_read_and_bring_items(client: openai.OpenAI, live: Live, scripted: Scripted) -> None:
    id = client.conversations.create(items=ITEMS).id
    first = client.responses.create(model="scripted", input="q1", conversation=id)
    assert strict_response(first.to_dict()).conversation.id == id  # type: ignore[union-attr]
    streamed(live, model="scripted", input="q2", conversation={"id": id})
    said_so_far = scripted.asked[-1].messages  # type: ignore[union-attr]
    assert said_so_far is not None
    assert [message["role"] for message in said_so_far] == [
        *("user", "system", "assistant", "tool"),
        *("user", "assistant", "user"),
    ]
    items = list(client.conversations.items.list(id, order="asc"))
    assert len(items) == len(ITEMS) + 4 and items[len(ITEMS) + 1].id == first.output[0].id
    # a chain goes on from where its response was in the conversation
    client.responses.create(model="scripted", input="q3", previous_response_id=first.id)
    chained = scripted.asked[-1].messages  # type: ignore[union-attr]
    assert chained is not None and [*said_so_far[:-1], {"role": "user", "content": "q3"}] == chained
    client.conversations.delete(id)
    assert client.responses.retrieve(first.id) == first, "responses stay"


def test_a_conversation_that_is_not_there(client: openai.OpenAI, scripted: Scripted) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="scripted", input="q", conversation="conv_none")
    assert caught.value.param == "conversation" and not scripted.asked


def test_what_is_refused(client: openai.OpenAI, live: Live) -> None:
    id = client.conversations.create().id
    cases: list[tuple[str, Any, str]] = [
        ("", {"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ("", {"metadata": {"k" * 65: ""}}, "metadata"),
        ("", {"metadata": {"k": "v" * 513}}, "metadata.k"),
        ("", {"items": [HELLO] * 21}, "items"),
        ("", {"other": 1}, "other"),
        (f"/{id}", {}, "metadata"),
        (f"/{id}/items", {"items": [{"type": "web_search_call", "id": "x"}]}, "items[0].type"),
        (f"/{id}/items", {"items": [HELLO | {"id": "x"}, HELLO | {"id": "x"}]}, "items"),
        (f"/{id}/items", {"items": [HELLO | {"id": "x" * 65}]}, "items[0].id"),
        (f"/{id}/items?other=1", {"items": []}, "other"),
    ]
    for path, body, param in cases:
        answer = live.post(f"/v1/conversations{path}", body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param, (path, body, answer.text)
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=a&before=b"):
        answer = httpx.get(f"{live.url}/v1/conversations/{id}/items?{query}")
        assert answer.status_code == 400 and answer.json()["error"]["param"] in query
