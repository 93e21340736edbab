"""A second client library for each API: what people's programs use beside the official SDKs."""

import os
from typing import Any

import pytest
from live_server import Live

from skips import import_peer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of litellm's own types
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SAME: dict[str, Any] = {"temperature": 0, "max_tokens": 16}


@pytest.fixture(scope="module")
def litellm() -> Any:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its list of prices is not fetched
    return import_peer("litellm")


@pytest.fixture(scope="module")
def answer(live: Live) -> str:
    """What the model says, asked without a library."""
    body = {"model": "smollm2", "messages": QUESTION, **SAME}
    text: str = live.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert text
    return text


PROVIDERS = {"openai": "/v1", "anthropic": "", "ollama_chat": ""}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellm_chats(live: Live, litellm: Any, answer: str, provider: str) -> None:
    options = {"api_base": live.url + PROVIDERS[provider], "api_key": "none", "messages": QUESTION, **SAME}
    whole = litellm.completion(model=f"{provider}/smollm2", **options)
    assert whole.choices[0].message.content.strip() == answer.strip()
    assert whole.usage.prompt_tokens > 10 and whole.usage.completion_tokens > 0
    parts = litellm.completion(model=f"{provider}/smollm2", stream=True, **options)
    assert "".join(part.choices[0].delta.content or "" for part in parts).strip() == answer.strip()


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm_calls_tools(live: Live, litellm: Any, provider: str) -> None:
    whole = litellm.completion(
        model=f"{provider}/smollm2",
        api_base=live.url + PROVIDERS[provider],
        api_key="none",
        messages=[{"role": "user", "content": "How is the weather in Oslo?"}],
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        temperature=0,
        max_tokens=64,
    )
    call = whole.choices[0].message.tool_calls[0]
    assert call.function.name == "weather" and '"city"' in call.function.arguments


def test_litellm_embeds(live: Live, litellm: Any) -> None:
    found = litellm.embedding(model="openai/smollm2", input=["a llama"], api_base=f"{live.url}/v1", api_key="none")
    assert len(found.data[0]["embedding"]) == 576


def test_langchain_openai(live: Live, answer: str) -> None:
    made = import_peer("langchain_openai").ChatOpenAI
    model = made(model="smollm2", base_url=f"{live.url}/v1", api_key="none", temperature=0, max_tokens=16)
    assert model.invoke(QUESTION).content == answer
    chunks = list(model.stream(QUESTION))
    assert "".join(chunk.content for chunk in chunks) == answer
    assert model.invoke(QUESTION).usage_metadata["input_tokens"] > 10
    called = model.bind_tools([WEATHER], tool_choice="weather").invoke("How is the weather in Oslo?", max_tokens=64)
    assert called.tool_calls[0]["name"] == "weather" and called.tool_calls[0]["args"]["city"]


def test_langchain_openai_structured(live: Live) -> None:
    made = import_peer("langchain_openai").ChatOpenAI
    schema = {
        "title": "Capital",
        "type": "object",
        "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
        "required": ["city", "country"],
        "additionalProperties": False,
    }
    model = made(model="smollm2", base_url=f"{live.url}/v1", api_key="none", temperature=0, max_tokens=64)
    found = model.with_structured_output(schema, method="json_schema", strict=True).invoke("The capital of France?")
    assert found.keys() == {"city", "country"}


def test_langchain_ollama(live: Live, answer: str) -> None:
    made = import_peer("langchain_ollama").ChatOllama
    model = made(model="smollm2", base_url=live.url, temperature=0, num_predict=16)
    assert model.invoke(QUESTION).content == answer
    assert "".join(chunk.content for chunk in model.stream(QUESTION)) == answer


def test_langchain_anthropic(live: Live, answer: str) -> None:
    made = import_peer("langchain_anthropic").ChatAnthropic
    model = made(model="smollm2", base_url=live.url, api_key="none", temperature=0, max_tokens=16)
    assert model.invoke(QUESTION).content == answer
    assert "".join(str(chunk.text) for chunk in model.stream(QUESTION)) == answer
