"""Fields of other servers' APIs: each does what it says there, or is an error that names it."""

import json
from typing import Any

import httpx
import msgspec
import pytest
from live_server import Live, Scripted, done, said, wait_for

from llamina.server.model.frames import CallDelta, Generate

TALE = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
CHAT: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def scripted(live: Live) -> Scripted:
    """A model that says "ok", and tells what it was asked."""
    model = live.adopt("scripted", lambda: Scripted([said(text="ok"), done()]))
    assert isinstance(model, Scripted)
    return model


def options_of(model: Scripted) -> dict[str, Any]:
    asked = model.asked[-1]
    assert isinstance(asked, Generate)
    return asked.options


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


# ---- sampling --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "engine"),
    [
        ({"max_new_tokens": 5}, {"max_tokens": 5}),
        ({"min_tokens": 3}, {"min_tokens": 3}),
        ({"stop_token_ids": [7, 8]}, {"stop_tokens": [7, 8]}),
        ({"bad_words": ["x", "y z"]}, {"bad_words": ["x", "y z"]}),
        ({"include_stop_str_in_output": True}, {"include_stop": True}),
        ({"guided_json": '{"type": "object"}'}, {"json_schema": '{"type": "object"}'}),
        ({"structured_outputs": {"json": {"type": "array"}}}, {"json_schema": {"type": "array"}}),
        ({"structured_outputs": {"json_object": True}}, {"json_schema": {"type": "object"}}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choices": ["a", "b"]}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, {"grammar": 'root ::= "a"'}),
        ({"skip_special_tokens": True}, {}),
        ({"reasoning_budget": 9}, {"reasoning_budget": 9}),
        ({"thinking_token_budget": 9}, {"reasoning_budget": 9}),
        ({"thinking_budget_tokens": -1}, {}),
        ({"reasoning_format": "none"}, {"reasoning": False}),
        ({"reasoning_format": "auto"}, {}),
        ({"reasoning_format": "deepseek"}, {}),
        ({"store": False, "verbosity": "medium", "service_tier": "auto", "metadata": {"a": "b"}}, {}),
    ],
)
def test_names_of_others(live: Live, scripted: Scripted, given: dict[str, Any], engine: dict[str, Any]) -> None:
    answer = live.post("/v1/chat/completions", CHAT | given)
    assert answer.status_code == 200, answer.text
    assert options_of(scripted) == engine and "x-llamina-warnings" not in answer.headers


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_new_tokens": 5, "max_tokens": 6}, "max_new_tokens"),
        ({"stop_token_ids": [1], "stop_tokens": [2]}, "stop_token_ids"),
        ({"stop_token_ids": [1] * 2000}, "stop_tokens"),
        ({"structured_outputs": {"regex": "a"}, "regex": "b"}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"bad_words": ["x"] * 2000}, "bad_words"),
        ({"bad_words": ["x" * 300]}, "bad_words"),
        ({"store": True}, "store"),
        ({"reasoning_format": "deepseek-legacy"}, "reasoning_format"),
        ({"reasoning_budget": 1, "thinking_token_budget": 2}, "reasoning_budget"),
    ],
)
def test_what_is_not_done_is_named(live: Live, scripted: Scripted, given: dict[str, Any], named: str) -> None:
    answer = live.post("/v1/chat/completions", CHAT | given)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == named, answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_hints_that_the_model_does_not_know(live: Live, scripted: Scripted, stream: bool) -> None:
    """Are answered, and a header tells that nothing was done about them."""
    answer = live.post("/v1/chat/completions", CHAT | {"verbosity": "low", "service_tier": "flex", "stream": stream})
    told = answer.headers["x-llamina-warnings"]
    assert answer.status_code == 200 and "verbosity low" in told and "service_tier flex" in told


def test_ends_reach_the_engine(live: Live) -> None:
    engine = live.engines["stories"]
    free = engine.generate(TALE["prompt"], max_tokens=8, temperature=0)
    assert isinstance(free.text, str)
    answer = live.post("/v1/completions", TALE | {"stop_token_ids": [free.tokens[3]]}).json()["choices"][0]
    assert free.text.startswith(answer["text"]) and answer["finish_reason"] == "stop"
    longer = TALE | {"stop_token_ids": [free.tokens[3]], "min_tokens": 6}
    assert live.post("/v1/completions", longer).json()["usage"]["completion_tokens"] >= 6
    stop = free.text[4:8]
    shown = live.post("/v1/completions", TALE | {"stop": stop, "include_stop_str_in_output": True}).json()
    assert shown["choices"][0]["text"] == free.text[: free.text.index(stop) + len(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_bad_words_are_not_said(live: Live, stream: bool) -> None:
    free = live.engines["stories"].generate(TALE["prompt"], max_tokens=8, temperature=0)
    assert isinstance(free.text, str)
    word = " ".join(free.text.split()[:2])
    answer = live.post("/v1/completions", TALE | {"bad_words": [word], "stream": stream})
    parts = events_of(answer.text) if stream else [answer.json()]
    said = "".join(part["choices"][0]["text"] for part in parts)
    assert said and word not in said and word in free.text
    wrong = live.post("/v1/completions", TALE | {"bad_words": ["a", ""]})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "bad_words"


# ---- beams and prompts' log-probabilities ----------------------------------------------------------------


@pytest.mark.parametrize(
    "asked", [{"use_beam_search": True, "n": 3}, {"num_beams": 3, "n": 3}, {"beam_width": 3, "n": 3, "temperature": 0}]
)
def test_beam_search(live: Live, asked: dict[str, Any]) -> None:
    body = {key: value for key, value in TALE.items() if key != "temperature"} | asked | {"length_penalty": 0.5}
    found = live.post("/v1/completions", body | {"prompt": ["Once upon a time", "Lily"]})
    assert found.status_code == 200, found.text
    expected, made = [], 0
    for prompt in ("Once upon a time", "Lily"):
        best = live.engines["stories"].generate(prompt, beam_width=3, n=3, max_tokens=8, length_penalty=0.5)
        answers = [best, *best.alternatives]
        expected += [(answer.text, answer.finish_reason) for answer in answers]
        made += sum(answer.usage.completion_tokens for answer in answers)
    answer = found.json()
    assert [(choice["text"], choice["finish_reason"]) for choice in answer["choices"]] == expected
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert answer["usage"]["completion_tokens"] == made
    assert live.idle("stories")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"num_beams": 2, "beam_width": 3}, "num_beams"),
        ({"num_beams": 2, "top_k": 4}, "top_k"),
        ({"num_beams": 2, "n": 3}, "n"),
        ({"num_beams": 17}, "beam_width"),
        ({"num_beams": 2, "stream": True}, "stream"),
    ],
)
def test_what_beams_cannot_do(live: Live, asked: dict[str, Any], named: str) -> None:
    refused = live.post("/v1/completions", {"model": "stories", "prompt": "Once", "max_tokens": 4} | asked)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == named, refused.text


def test_prompt_logprobs(live: Live) -> None:
    """As vLLM tells them, and as the engine scores them."""
    choice = live.post("/v1/completions", TALE | {"prompt_logprobs": 2}).json()["choices"][0]
    engine = live.engines["stories"]
    tokens = engine.encode("Once upon a time")
    told = choice["prompt_logprobs"]
    assert len(told) == len(tokens) and told[0] is None and choice["logprobs"] is None
    scores = engine.score(tokens[:1], tokens[1:]).logprobs
    for entry, token, score in zip(told[1:], tokens[1:], scores, strict=True):
        assert entry[str(token)]["logprob"] == pytest.approx(score, abs=1e-4) and len(entry) in (2, 3)
        assert sorted(one["rank"] for one in entry.values() if one["rank"]) == [1, 2]
    for more in ({"stream": True}, {"echo": True, "logprobs": 1}):
        refused = live.post("/v1/completions", TALE | {"prompt_logprobs": 2} | more)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "prompt_logprobs"


# ---- streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("echo", [False, True])
def test_several_prompts_are_streamed(live: Live, echo: bool) -> None:
    """The choices of all, told apart by their index, come to what is not streamed."""
    asked = TALE | {"prompt": ["Once upon a time", "Lily", [403, 407]], "n": 2, "echo": echo}
    whole = live.post("/v1/completions", asked).json()
    parts = events_of(
        live.post("/v1/completions", asked | {"stream": True, "stream_options": {"include_usage": True}}).text
    )
    texts, reasons = [""] * 6, [None] * 6
    for part in parts:
        for choice in part["choices"]:
            texts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]
    counted = {name: whole["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert parts[-1]["usage"].items() >= counted.items() and live.idle("stories")


def test_a_prompt_that_cannot_be_computed_ends_the_others(live: Live) -> None:
    endless = {"model": "stories", "max_tokens": 10**6, "ignore_eos": True, "context_shift": True, "stream": True}
    refused = live.post("/v1/completions", endless | {"prompt": [[403] * 5000, "Once"]})
    assert refused.status_code == 400 and "5000" in refused.json()["error"]["message"], refused.text
    assert wait_for(lambda: live.idle("stories"))


def test_a_client_that_leaves_ends_all_prompts(live: Live) -> None:
    endless = {"model": "stories", "prompt": ["Once", "Lily"], "max_tokens": 10**6, "ignore_eos": True}
    body = endless | {"context_shift": True, "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/completions", json=body) as response:
        seen: set[int] = set()
        for line in response.iter_lines():
            if line.startswith("data: "):
                seen.add(json.loads(line[6:])["choices"][0]["index"])
            if seen == {0, 1}:
                break
    assert wait_for(lambda: live.idle("stories"))


def test_progress_of_a_completion(live: Live) -> None:
    body = {"model": "scripted", "prompt": "x", "stream": True}
    waits = msgspec.structs.replace(said(computed=3), tokens=[])
    live.adopt("scripted", lambda: Scripted([waits, said(text="ok"), done()]))
    parts = events_of(live.post("/v1/completions", body | {"return_progress": True}).text)
    assert parts[0]["prompt_progress"] == {"total": 7, "processed": 3} and parts[0]["choices"][0]["text"] == ""
    assert [part["choices"][0]["text"] for part in parts[1:]] == ["ok", ""]
    assert all("prompt_progress" not in part for part in events_of(live.post("/v1/completions", body).text))


def test_a_call_that_turns_out_to_be_none(live: Live) -> None:
    """Its text arrives as content, and the answer does not end with tool_calls."""
    chunks = [
        said(calls=[CallDelta(0, "a", "f")]),
        said(calls=[CallDelta(0, arguments='{"x')]),
        said(calls=[CallDelta(0, dropped=True)], text='<call>{"x'),
        said(text=" no"),
        done(),
    ]
    live.adopt("scripted", lambda: Scripted(chunks))
    choices = [
        part["choices"][0] for part in events_of(live.post("/v1/chat/completions", CHAT | {"stream": True}).text)
    ]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert content == '<call>{"x no' and choices[-1]["finish_reason"] == "stop"
    whole = live.post("/v1/chat/completions", CHAT).json()["choices"][0]
    assert whole["message"]["content"] == content and "tool_calls" not in whole["message"]
