"""Ollama's official client against a live server; every object is validated strictly by its own models."""

import json
from datetime import datetime
from typing import Any

import httpx
import ollama
import pytest
from live_server import PATIENCE, Live, Scripted, done, said, wait_for
from ollama import ChatResponse, EmbedResponse, GenerateResponse, ListResponse, ProcessResponse, ShowResponse
from ollama._types import EmbeddingsResponse
from pydantic import BaseModel

from llamina.server.model.frames import CallDelta, ErrorInfo, Generate, Logprob

GREEDY = {"temperature": 0}
BRIEF = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
# Fields of Ollama's own types (api/types.go) that its Python client does not declare.
UNDECLARED = {"id", "index", "bytes", "context_length", "embedding_length", "capabilities", "name", "tensors"}
UNDECLARED |= {"system", "messages"}


@pytest.fixture(scope="module")
def client(live: Live) -> ollama.Client:
    return ollama.Client(host=live.url, timeout=PATIENCE)


def strict(kind: type[BaseModel], data: bytes | str) -> Any:
    """The object, if every value has its type and every field is one of Ollama's."""
    found = kind.model_validate_json(data, strict=True)
    _known(found, json.loads(data))
    return found


def _known(model: Any, data: Any) -> None:
    if isinstance(model, BaseModel):
        names = {field.alias or name for name, field in type(model).model_fields.items()}
        assert set(data) <= names | UNDECLARED, f"{type(model).__name__}: {set(data) - names}"
        for name, field in type(model).model_fields.items():
            _known(getattr(model, name), data.get(field.alias or name))
    if isinstance(model, list | tuple):
        for item, value in zip(model, data, strict=True):
            _known(item, value)


def lines(live: Live, path: str, body: dict[str, Any], kind: type[BaseModel]) -> list[Any]:
    """The lines of a stream as they come over the wire, each validated."""
    response = live.post(path, body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [strict(kind, line) for line in response.text.splitlines()]


# ---- chat ------------------------------------------------------------------------------------------------


def test_chat(live: Live) -> None:
    response = live.post("/api/chat", {"model": "smollm2", "messages": BRIEF, "options": GREEDY, "stream": False})
    answer = strict(ChatResponse, response.content)
    assert answer.message.role == "assistant" and "Paris" in answer.message.content
    assert (answer.done, answer.done_reason, answer.model) == (True, "stop", "smollm2")
    assert answer.prompt_eval_count > 10 and answer.eval_count > 3
    assert answer.total_duration >= answer.eval_duration + answer.load_duration > 0
    assert answer.prompt_eval_duration > 0
    assert answer.created_at.endswith("Z") and datetime.fromisoformat(answer.created_at)


def test_stream_is_the_default_and_says_the_same(live: Live, client: ollama.Client) -> None:
    whole = client.chat("smollm2", BRIEF, options=GREEDY)
    found = lines(live, "/api/chat", {"model": "smollm2:latest", "messages": BRIEF, "options": GREEDY}, ChatResponse)
    assert len(found) > 3 and [line.done for line in found] == [False] * (len(found) - 1) + [True]
    assert "".join(line.message.content for line in found) == whole.message.content
    assert (found[-1].eval_count, found[-1].done_reason) == (whole.eval_count, "stop")
    assert all(line.eval_count is None and line.model == "smollm2:latest" for line in found[:-1])
    pieces = list(client.chat("smollm2", BRIEF, options=GREEDY, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content


def test_logprobs(live: Live) -> None:
    body = {"model": "smollm2", "messages": BRIEF, "options": {**GREEDY, "num_predict": 3}}
    found = lines(live, "/api/chat", body | {"logprobs": True, "top_logprobs": 2}, ChatResponse)
    scored = [entry for line in found for entry in line.logprobs or ()]
    assert len(scored) == 3 and all(len(entry.top_logprobs) == 2 for entry in scored)
    assert all(entry.token == entry.top_logprobs[0].token and entry.logprob <= 0 for entry in scored)
    assert found[-1].done_reason == "length"
    plain = live.post("/api/chat", body | {"logprobs": True, "stream": False}).json()
    assert [entry["token"] for entry in plain["logprobs"]] == [entry.token for entry in scored]
    assert "top_logprobs" not in plain["logprobs"][0]


def test_structured_output(client: ollama.Client) -> None:
    class City(BaseModel):
        name: str
        large: bool

    asked = [{"role": "user", "content": "Describe Paris."}]
    answer = client.chat("smollm2", asked, format=City.model_json_schema(), options={**GREEDY, "num_predict": 300})
    assert City.model_validate_json(answer.message.content or "")
    free = client.generate("smollm2", "A JSON object.", format="json", options={**GREEDY, "num_predict": 10})
    assert free.response.lstrip().startswith("{")


def test_tools(live: Live, client: ollama.Client) -> None:
    asked = [{"role": "user", "content": "How is the weather in Paris?"}]
    body = {"model": "smollm2", "messages": asked, "tools": [WEATHER], "tool_choice": "required", "options": GREEDY}
    answer = strict(ChatResponse, live.post("/api/chat", body | {"stream": False}).content)
    (call,) = answer.message.tool_calls
    assert call.function.name == "get_weather" and set(call.function.arguments) == {"city"}
    found = lines(live, "/api/chat", body, ChatResponse)
    assert [line.message.tool_calls for line in found if line.message.tool_calls] == [answer.message.tool_calls]
    assert found[-1].done and not found[-1].message.tool_calls
    turns = [*asked, answer.message, {"role": "tool", "tool_name": "get_weather", "content": "Sunny, 21 °C"}]
    last = client.chat("smollm2", turns, tools=[WEATHER], options={**GREEDY, "num_predict": 20})
    assert last.message.content and last.prompt_eval_count > answer.prompt_eval_count


def test_thinking_and_calls(live: Live, client: ollama.Client) -> None:
    chunks = [
        said(reasoning="Hm."),
        said(text="Now:"),
        said(calls=[CallDelta(0, "aaa", "f"), CallDelta(0, arguments='{"x":')]),
        said(calls=[CallDelta(0, arguments="1}"), CallDelta(1, "bbb", "g")]),
        done(calls=[CallDelta(1, arguments="{}"), CallDelta(2, "ccc", "h"), CallDelta(2, dropped=True)]),
    ]
    model = live.adopt("caller", lambda: Scripted(chunks))
    body = {"model": "caller", "messages": BRIEF, "think": True}
    found = lines(live, "/api/chat", body, ChatResponse)
    assert [line.message.thinking for line in found] == ["Hm.", None, None, None, None]
    calls = [[call.function.name for call in line.message.tool_calls or ()] for line in found]
    assert calls == [[], [], ["f"], ["g"], []]
    answer = client.chat("caller", BRIEF, think="high")
    assert (answer.message.thinking, answer.message.content) == ("Hm.", "Now:")
    assert [call.function.arguments for call in answer.message.tool_calls] == [{"x": 1}, {}]
    assert (answer.prompt_eval_duration, answer.eval_duration) == (250_000_000, 500_000_000)
    assert isinstance(model, Scripted)
    options = [frame.options["template_options"] for frame in model.asked if isinstance(frame, Generate)]
    assert options == [{"enable_thinking": True}, {"enable_thinking": True, "reasoning_effort": "high"}]


def test_options_under_the_engines_names(live: Live) -> None:
    model = live.adopt("options", lambda: Scripted([done()]))
    given = {
        "num_keep": 3, "seed": 7, "num_predict": 9, "top_k": 5, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.9,
        "repeat_last_n": 33, "temperature": 0.3, "repeat_penalty": 1.2, "presence_penalty": 1.5,
        "frequency_penalty": 1.0, "mirostat": 1, "mirostat_tau": 0.8, "mirostat_eta": 0.6, "stop": ["a", "b"],
        "penalize_newline": True, "tfs_z": 1.0, "numa": False, "num_ctx": 1024, "num_batch": 2, "num_gpu": 1,
        "main_gpu": 0, "low_vram": False, "f16_kv": True, "logits_all": False, "vocab_only": False, "use_mmap": True,
        "use_mlock": False, "embedding_only": False, "num_thread": 8, "draft_num_predict": 4,
    }  # fmt: skip
    assert set(ollama.Options.model_fields) <= set(given)
    client = ollama.Client(host=live.url)
    client.chat("options", BRIEF, options=given)
    client.chat("options", BRIEF, options={"num_predict": -1, "seed": -1})
    client.chat("options", BRIEF)
    live.post("/api/chat", {"model": "options", "messages": BRIEF, "truncate": True, "shift": True})
    assert isinstance(model, Scripted)
    first, *others, last = [frame.options for frame in model.asked if isinstance(frame, Generate)]
    same = {key: given[key] for key in given if key in first}
    renamed = {"n_keep": 3, "max_tokens": 9}
    assert first == same | renamed and len(same) == 14
    assert others == [{"max_tokens": None}, {"max_tokens": None}]
    assert last == {"max_tokens": None, "truncate": True, "context_shift": True}


# ---- generate --------------------------------------------------------------------------------------------


def test_generate(live: Live) -> None:
    body = {"model": "smollm2", "prompt": "What is the capital of France?", "system": "Be brief.", "options": GREEDY}
    answer = strict(GenerateResponse, live.post("/api/generate", body | {"stream": False}).content)
    assert "Paris" in answer.response and answer.done_reason == "stop"
    found = lines(live, "/api/generate", body, GenerateResponse)
    assert "".join(line.response for line in found) == answer.response
    assert found[-1].context == answer.context and all(line.context is None for line in found[:-1])
    assert len(answer.context) == answer.prompt_eval_count + answer.eval_count


def test_context_continues_a_conversation(client: ollama.Client) -> None:
    first = client.generate("smollm2", "My name is Ada.", options={**GREEDY, "num_predict": 20})
    second = client.generate(
        "smollm2", "What is my name?", context=first.context, options={**GREEDY, "num_predict": 20}
    )
    assert list(second.context[: len(first.context)]) == list(first.context)
    alone = client.generate("smollm2", "What is my name?", options={**GREEDY, "num_predict": 20})
    assert second.prompt_eval_count == len(first.context) + alone.prompt_eval_count


def test_raw_is_the_prompt_as_it_is(live: Live, client: ollama.Client) -> None:
    answer = client.generate("stories", "Once upon a time", raw=True, options={**GREEDY, "num_predict": 10})
    whole = live.engines["stories"].generate("Once upon a time", temperature=0, max_tokens=10)
    assert (answer.response, answer.eval_count, answer.context) == (whole.text, 10, None)
    plain = client.generate("stories", "Once upon a time", options={**GREEDY, "num_predict": 10})
    assert plain.response == answer.response and plain.context[:5] == live.engines["stories"].encode("Once upon a time")


def test_template(live: Live, client: ollama.Client) -> None:
    template = (
        "{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}{{ if .Prompt }}<|im_start|>user\n"
        "{{ .Prompt }}<|im_end|>\n{{ end }}<|im_start|>assistant\n{{ .Response }}<|im_end|>\n"
    )
    asked: dict[str, Any] = {"prompt": "What is the capital of France?", "system": "Be brief.", "options": GREEDY}
    ours, theirs = client.generate("smollm2", **asked), client.generate("smollm2", **asked, template=template)
    assert theirs.response == ours.response and theirs.context == ours.context


def test_suffix_images_and_templates_that_are_not_known(client: ollama.Client) -> None:
    cases: list[dict[str, Any]] = [
        {"suffix": "return x"},
        {"images": [b"png"]},
        {"template": "{{ range .Messages }}{{ .Content }}{{ end }}"},
        {"raw": True, "system": "x"},
        {"think": True},
        {"width": 512},
    ]
    for case in cases:
        with pytest.raises(ollama.ResponseError) as error:
            client.generate("smollm2", "x", **case)
        assert error.value.status_code == 400


# ---- loading and unloading -------------------------------------------------------------------------------


def test_load_and_unload(live: Live, client: ollama.Client) -> None:
    live.adopt("passing", lambda: Scripted([said(text="x"), done()]))
    entry = live.models.entries["passing"]
    assert client.generate("passing", keep_alive="10m").done_reason == "load"
    assert entry.profile.keep_alive == 600
    assert client.chat("passing", keep_alive=-1).done_reason == "load"
    assert entry.profile.keep_alive is None and entry.model is not None
    assert client.chat("passing", keep_alive=0).done_reason == "unload"
    assert entry.model is None and "passing:latest" not in [model.model for model in client.ps().models]

    live.adopt("passing", lambda: Scripted([said(text="x"), done()]))
    entry = live.models.entries["passing"]
    list(client.chat("passing", BRIEF, stream=True, keep_alive="0"))
    assert wait_for(lambda: entry.model is None)
    live.call(live.models.remove(entry))


def test_keep_alive_that_is_no_duration(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="5m"):
        client.chat("smollm2", BRIEF, keep_alive="soon")


# ---- embeddings ------------------------------------------------------------------------------------------


def test_embed(live: Live, client: ollama.Client) -> None:
    body = {"model": "smollm2", "input": ["one", "two words"]}
    answer = strict(EmbedResponse, live.post("/api/embed", body).content)
    expected = live.engines["smollm2"].embed(["one", "two words"])
    assert answer.embeddings == expected.tolist()
    assert answer.prompt_eval_count == 3 and answer.total_duration > 0
    assert client.embed("smollm2", "one").embeddings[0] == pytest.approx(expected[0].tolist())
    short = client.embed("smollm2", "one", dimensions=8).embeddings[0]
    assert len(short) == 8 and sum(x * x for x in short) == pytest.approx(1)
    assert client.embed("smollm2", []).embeddings == client.embed("smollm2", "").embeddings == []
    old = strict(EmbeddingsResponse, live.post("/api/embeddings", {"model": "smollm2", "prompt": "one"}).content)
    assert old.embedding == live.engines["smollm2"].embed("one", normalize=False)[0].tolist()
    assert client.embeddings("smollm2", "").embedding == []


def test_long_inputs_are_cut_unless_told_otherwise(live: Live, client: ollama.Client) -> None:
    engine = live.engines["stories"]
    long = "once " * 3000
    cut = engine.embed([engine.encode(long)[: engine.context]])[0]
    answer = client.embed("stories", long)
    assert answer.embeddings[0] == pytest.approx(cut.tolist(), abs=1e-6)
    assert answer.prompt_eval_count == engine.context
    with pytest.raises(ollama.ResponseError, match="the context holds"):
        client.embed("stories", long, truncate=False)


# ---- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]}, "reads text only"),
        ({"messages": [{"role": "user", "content": "x", "images": [7]}]}, "messages[0].images"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"bogus": 1}, "bogus"),
        ({"options": {"warmth": 1}}, "warmth"),
        ({"options": {"temperature": "hot"}}, "temperature"),
        ({"options": {"temperature": -1}}, "temperature"),
        ({"options": {"num_ctx": 1 << 20}}, "num_ctx"),
        ({"options": {"tfs_z": 0.5}}, "tfs_z"),
        ({"options": {"penalize_newline": False}}, "penalize_newline"),
        ({"options": {"vocab_only": True}}, "vocab_only"),
        ({"format": "xml"}, "format"),
        ({"format": {"type": "shape"}}, "shape"),
        ({"think": True}, "think"),
        ({"think": "deeply"}, "think"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tool"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": 1}}}]}, "properties"),
        ({"keep_alive": []}, "keep_alive"),
        ({"model": ""}, "model"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_input_is_a_400_that_names_the_field(live: Live, change: dict[str, Any], named: str, stream: bool) -> None:
    response = live.post("/api/chat", {"model": "smollm2", "messages": BRIEF, "stream": stream} | change)
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"] and named in response.json()["error"]


def test_unknown_models(client: ollama.Client) -> None:
    for ask in (client.chat, client.generate, client.show, client.embed, client.delete):
        with pytest.raises(ollama.ResponseError) as error:
            ask("nobody")  # type: ignore[operator]
        assert error.value.status_code == 404 and "nobody" in error.value.error


def test_error_in_the_middle_of_a_stream(live: Live, client: ollama.Client) -> None:
    lost = done("error", error=ErrorInfo("ModelLost", "the model's process ended"))
    live.adopt("fleeting", lambda: Scripted([said(text="Once"), lost]))
    with pytest.raises(ollama.ResponseError, match="process ended"):
        list(client.chat("fleeting", BRIEF, stream=True))
    with pytest.raises(ollama.ResponseError, match="process ended") as error:
        client.chat("fleeting", BRIEF)
    assert error.value.status_code == 503


def test_closed_stream_is_cancelled(live: Live, client: ollama.Client) -> None:
    stream = client.chat("smollm2", BRIEF, stream=True, options={"temperature": 1.5, "num_predict": 1500})
    next(stream)
    assert not live.idle("smollm2")
    stream.close()
    assert wait_for(lambda: live.idle("smollm2"))
    assert wait_for(lambda: live.models.entries["smollm2"].users == 0)


# ---- lists -----------------------------------------------------------------------------------------------


def get(live: Live, path: str) -> bytes:
    response = httpx.get(live.url + path, timeout=PATIENCE)
    assert response.status_code == 200
    return response.content


def test_tags_and_ps(live: Live) -> None:
    listed = {model.model: model for model in strict(ListResponse, get(live, "/api/tags")).models}
    model = listed["smollm2:latest"]
    assert model.details.quantization_level == "Q4_1" and model.details.parameter_size == "134.52M"
    assert model.details.family == "llama" and model.size == 98_362_432 and len(model.digest) == 64
    running = {model.name: model for model in strict(ProcessResponse, get(live, "/api/ps")).models}
    assert running["smollm2:latest"].context_length == 2048 and running["smollm2:latest"].digest == model.digest
    assert listed["stories:latest"].details.parameter_size == "293K"


def test_show(live: Live) -> None:
    body = {"model": "smollm2:latest"}
    found = strict(ShowResponse, live.post("/api/show", body).content)
    assert found.capabilities == ["completion", "tools"] and "im_start" in found.template
    assert found.modelinfo["general.architecture"] == "llama"
    assert found.modelinfo["tokenizer.ggml.tokens"] is None
    assert found.modelfile.endswith("FROM smollm2\n")
    whole = live.post("/api/show", {"name": "smollm2", "verbose": True}).json()
    assert len(whole["model_info"]["tokenizer.ggml.tokens"]) == 49152
    assert {"name": "token_embd.weight", "type": "Q8_0", "shape": [576, 49152]} in whole["tensors"]


def test_version(live: Live) -> None:
    assert json.loads(get(live, "/api/version"))["version"].count(".") == 2
    assert httpx.head(f"{live.url}/api/version", timeout=PATIENCE).status_code == 200


def test_logprobs_of_bytes_that_are_no_text(live: Live) -> None:
    live.adopt("bytes", lambda: Scripted([said(logprobs=[Logprob(1, b"\xff", float("-inf"))]), done()]))
    found = lines(live, "/api/chat", {"model": "bytes", "messages": BRIEF, "logprobs": True}, ChatResponse)
    assert found[0].logprobs[0].token == "\ufffd" and found[0].logprobs[0].logprob == -9999
