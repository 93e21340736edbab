"""The page in a browser, with models that say what they are told to: conversations, branches, files, settings."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from browser import Tab, scripted, spoken
from live_server import Live, Scripted, done, said, wait_for

from llamina.server.model.frames import CallDelta, Chunk, Chunks, Generate
from llamina.server.openai.chat import ChatRequest

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)


@pytest.fixture
def model(stage: Live) -> Scripted:
    scripted(stage, "other", spoken("Other says hi."))
    return scripted(stage, "scripted", spoken("First answer."), sees=True, hears=True)


@pytest.fixture
def tab(open_tab: Callable[..., Tab], stage: Live, model: Scripted) -> Tab:
    return open_tab(stage, kept={"llamina.model": "scripted"})


def asked(model: Scripted) -> Generate:
    last = model.asked[-1]
    assert isinstance(last, Generate)
    return last


def say_next(model: Scripted, chunks: list[Chunk]) -> None:
    model.chunks = chunks


def test_regenerate_and_branches(tab: Tab, model: Scripted) -> None:
    """Both answers stay reachable, and so does what was said after each."""
    tab.ask("Question")
    say_next(model, spoken("Second answer."))
    tab.again()
    assert tab.texts() == ["Question", "Second answer."]
    assert tab.page.locator(".branch-at").inner_text() == "2/2"
    tab.ask("Further")
    tab.press("Earlier version", nth=0)
    tab.page.wait_for_selector("text=First answer.")
    assert tab.texts() == ["Question", "First answer."]
    tab.press("Later version")
    tab.page.wait_for_selector("text=Further")
    assert tab.texts() == ["Question", "Second answer.", "Further", "Second answer."]
    tab.page.reload()
    tab.page.wait_for_selector("text=Further")
    assert tab.page.locator(".branch-at").first.inner_text() == "2/2"


def test_edit_makes_a_branch(tab: Tab, model: Scripted) -> None:
    tab.ask("Tpyo")
    say_next(model, spoken("Better."))
    tab.page.locator(".message-user").hover()
    tab.press("Edit", within=".message-user")
    editor = tab.page.get_by_label("Edit the message")
    assert editor.input_value() == "Tpyo"
    editor.fill("Typo")
    editor.press("Control+Enter")
    tab.page.wait_for_selector("text=Better.")
    tab.finish()
    assert tab.texts() == ["Typo", "Better."]
    assert asked(model).messages == [{"role": "user", "content": "Typo"}]
    tab.press("Earlier version")
    tab.page.wait_for_selector("text=First answer.")
    assert tab.texts() == ["Tpyo", "First answer."]
    tab.press("Edit", within=".message-assistant")
    tab.page.get_by_label("Edit the message").fill("My own answer")
    tab.page.get_by_role("button", name="Keep", exact=True).click()
    tab.page.wait_for_selector("text=My own answer")
    tab.ask("And?")
    sent = asked(model).messages
    assert sent is not None
    assert [m["content"] for m in sent] == ["Tpyo", "My own answer", "And?"]
    tab.page.locator(".message-user").last.hover()
    tab.press("Edit", within=".message-user")
    tab.page.keyboard.press("Escape")
    assert tab.texts("user") == ["Tpyo", "And?"]


def test_reasoning_calls_and_results(tab: Tab, model: Scripted) -> None:
    call = CallDelta(0, id="c1", name="weather"), CallDelta(0, arguments='{"city": "Oslo"}')
    say_next(model, [*spoken("", "I must look.")[:-1], said(calls=[call[0]]), said(calls=[call[1]]), done()])
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    tab.setting("Tools").fill(json.dumps([tool]))
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.ask("Is it raining?")
    assert asked(model).options["tools"] == [tool]
    folds = tab.page.locator(".message-assistant details:visible")
    assert folds.count() == 2 and not folds.first.evaluate("d => d.open")
    folds.nth(0).locator("summary").click()
    assert "I must look." in folds.nth(0).inner_text()
    folds.nth(1).locator("summary").click()
    assert '"city": "Oslo"' in folds.nth(1).inner_text()
    say_next(model, spoken("It rains."))
    tab.page.get_by_label("Result of weather").fill("rain, 8 °C")
    tab.page.get_by_role("button", name="Send results").click()
    tab.page.wait_for_selector("text=It rains.")
    tab.finish()
    sent = asked(model).messages
    assert sent is not None and sent[-1] == {"role": "tool", "tool_call_id": "c1", "content": "rain, 8 °C"}
    assert sent[-2]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    assert "Result of weather" in tab.page.locator(".message-tool").inner_text()


def test_attachments(tab: Tab, model: Scripted) -> None:
    files = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Llamas hum.\n```\nx\n```"},
        {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL},
        {"name": "dot.bmp", "mimeType": "image/bmp", "buffer": b"BM"},
    ]
    tab.page.set_input_files("#files", files)  # type: ignore[arg-type]
    tab.page.wait_for_selector(".attachment >> nth=2")
    tab.ask("What is this?")
    sent = asked(model).messages
    assert sent is not None
    text, image, bitmap = sent[0]["content"]
    assert text["text"] == "notes.txt:\n````\nLlamas hum.\n```\nx\n```\n````\n\nWhat is this?"
    assert image["type"] == "image_url" and image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert bitmap["image_url"]["url"].startswith("data:image/bmp;base64,Qk0")
    assert tab.page.locator(".message-user .attachment").count() == 3
    assert tab.page.locator(".composer .attachment").count() == 0
    tab.page.set_input_files("#files", {"name": "x.bin", "mimeType": "", "buffer": b"\0\xff\xfe"})
    assert "neither text nor" in tab.page.locator(".toast-error").inner_text()


SOUNDS = {
    "horn.wav": b"RIFF\x04\0\0\0WAVE",
    "tune.mp3": b"\xff\xfb\x90\x64" + bytes(8),
    "tagged.mp3": b"ID3\x04" + bytes(8),
    "bird.flac": b"fLaC" + bytes(8),
}


def test_sounds(tab: Tab, model: Scripted) -> None:
    """Told by their first bytes, whatever the browser says of them, and sent as OpenAI has them."""
    assert tab.page.locator("#model-facts").inner_text().endswith("tokens of context · sees · hears")
    files = [{"name": name, "mimeType": "", "buffer": data} for name, data in SOUNDS.items()]
    tab.page.set_input_files("#files", files)  # type: ignore[arg-type]
    tab.page.wait_for_selector(".attachment >> nth=3")
    tab.ask("What is heard?")
    sent = asked(model).messages
    assert sent is not None
    text, *sounds = sent[0]["content"]
    assert text == {"type": "text", "text": "What is heard?"}
    for (name, data), part in zip(SOUNDS.items(), sounds, strict=True):
        assert part["type"] == "input_audio" and part["input_audio"].keys() == {"data", "format"}
        assert part["input_audio"]["format"] == name.split(".")[1]
        assert base64.b64decode(part["input_audio"]["data"], validate=True) == data
    assert tab.page.locator(".message-user .attachment").count() == 4
    tab.page.set_input_files("#files", {"name": "utf16.txt", "mimeType": "", "buffer": "no sound".encode("utf-16")})
    assert "nor a sound (WAV, MP3, FLAC)" in tab.page.locator(".toast-error").inner_text()


def test_sounds_come_back_from_a_file(tab: Tab, model: Scripted, tmp_path: Path) -> None:
    tab.page.set_input_files("#files", {"name": "horn.wav", "mimeType": "audio/x-wav", "buffer": SOUNDS["horn.wav"]})
    tab.page.wait_for_selector(".attachment")
    tab.ask("What is heard?")
    first = asked(model).messages
    with tab.page.expect_download() as download:
        tab.press("Export all")
    path = tmp_path / "talk.json"
    download.value.save_as(path)
    tab.page.set_input_files("#import-file", path)
    tab.page.wait_for_function("() => document.querySelectorAll('.conversation').length === 2")
    tab.again()
    assert len(model.asked) == 2 and asked(model).messages == first
    with tab.page.expect_download() as download:
        tab.press("Export as Markdown")
    download.value.save_as(tmp_path / "talk.md")
    assert "(sound horn.wav)" in (tmp_path / "talk.md").read_text()
    path.write_text(path.read_text().replace("data:audio/wav;base64,", "https://evil.example/"))
    tab.page.set_input_files("#import-file", path)
    tab.page.wait_for_selector(".toast-error >> text=no data URL of a WAV, MP3 or FLAC")


def test_models_that_cannot_see_or_hear(tab: Tab, stage: Live, model: Scripted) -> None:
    """A file is refused when it is attached, and kept when another model is chosen before it is sent."""
    horn = {"name": "horn.wav", "mimeType": "audio/wav", "buffer": SOUNDS["horn.wav"]}
    tab.page.select_option("#model", "other")
    tab.page.set_input_files("#files", horn)  # type: ignore[arg-type]
    tab.page.wait_for_selector(".toast-error >> text=other does not hear: horn.wav cannot be sent to it.")
    tab.page.set_input_files("#files", {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL})
    tab.page.wait_for_selector(".toast-error >> text=other does not see: dot.png cannot be sent to it.")
    assert tab.page.locator(".attachment").count() == 0
    tab.page.select_option("#model", "scripted")
    tab.page.set_input_files("#files", horn)  # type: ignore[arg-type]
    tab.page.wait_for_selector(".attachment")
    tab.page.select_option("#model", "other")
    tab.page.fill("#input", "What is heard?")
    tab.page.click("#send")
    tab.page.wait_for_selector(".toast-error >> nth=2")
    assert tab.page.locator(".composer .attachment").count() == 1 and tab.texts() == []
    tab.page.select_option("#model", "scripted")
    tab.page.click("#send")
    tab.finish()
    assert len(model.asked) == 1 and tab.texts() == ["What is heard?", "First answer."]


def test_log_probabilities(tab: Tab, model: Scripted) -> None:
    say_next(model, spoken("Sure thing.", logprobs=True))
    tab.setting("Ask for log-probabilities").check()
    tab.page.keyboard.press("Escape")
    tab.ask("hi")
    assert asked(model).options["logprobs"] == 5
    tab.press("Show tokens with their probabilities")
    tokens = tab.page.locator(".token")
    assert "".join(tokens.all_text_contents()) == "Sure thing."
    tokens.first.hover()
    card = tab.page.locator(".token-card")
    assert "81.9 %" in card.inner_text() and "<else>" in card.inner_text() and "15.0 %" in card.inner_text()
    tokens.first.focus()
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.evaluate("document.activeElement.dataset.index") == "1"
    tab.press("Show tokens with their probabilities")
    assert tokens.count() == 0 and tab.texts("assistant") == ["Sure thing."]


def test_search_rename_delete(tab: Tab, model: Scripted) -> None:
    for text in ("About llamas", "About mountains"):
        tab.page.click("#new")
        tab.ask(text)
    say_next(model, spoken("A hidden word: xylophone."))
    tab.ask("More")
    titles = tab.page.locator(".conversation-title")
    assert titles.all_inner_texts() == ["About mountains", "About llamas"]
    for text, found in (("LLAMA", ["About llamas"]), ("xylophone", ["About mountains"]), ("zebra", [])):
        tab.page.fill("#search", text)
        assert wait_for(lambda found=found: titles.all_inner_texts() == found)  # type: ignore[misc]
    tab.page.fill("#search", "")
    tab.page.wait_for_selector("text=About llamas")
    tab.page.locator(".conversation").nth(1).hover()
    tab.press("Rename About llamas")
    tab.page.get_by_label("Name", exact=True).fill("On camelids")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=On camelids")
    tab.page.locator(".conversation").first.hover()
    tab.press("Delete About mountains")
    tab.page.get_by_role("button", name="Delete", exact=True).last.click()
    tab.page.wait_for_function("() => document.querySelectorAll('.conversation').length === 1")
    assert tab.texts() == [] and "#/c/" not in tab.page.url
    tab.page.reload()
    tab.page.wait_for_selector("text=On camelids")
    assert titles.all_inner_texts() == ["On camelids"]


def test_export_and_import(tab: Tab, model: Scripted, tmp_path: Path) -> None:
    """JSON has every branch; Markdown the one that is shown. Both come back as they went."""
    tab.ask("Question")
    say_next(model, spoken("Second **answer**.\n\n<!-- message: user -->\n\nnot a message"))
    tab.press("Answer again")
    tab.page.get_by_text("not a message", exact=True).wait_for()
    tab.finish()
    shown = tab.texts()

    def saved(label: str) -> Path:
        with tab.page.expect_download() as download:
            tab.press(label)
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    as_json, as_markdown = saved("Export all"), saved("Export as Markdown")
    assert as_json.name == "Question.json" and as_markdown.name == "Question.md"
    assert len(json.loads(as_json.read_text())["conversations"][0]["messages"]) == 3
    assert as_markdown.read_text().startswith("# Question\n\n<!-- message: user -->\n## You\n\nQuestion\n")
    for count, path in enumerate((as_json, as_markdown), start=2):
        tab.page.set_input_files("#import-file", path)
        tab.page.wait_for_function("n => document.querySelectorAll('.conversation').length === n", arg=count)
        tab.page.wait_for_selector(".message-assistant")
        assert tab.texts() == shown
        assert tab.page.locator(".branch-at").count() == (1 if path == as_json else 0)
    bad = tmp_path / "bad.json"
    for text, told in (
        ('{"format": "other"}', "format"),
        ("nothing", "<!-- message: user -->"),
        (
            '{"format": "llamina.conversations", "version": 1, "conversations": [{"title": "x", "messages": '
            '[{"id": "a", "role": "user", "content": "", "attachments": [{"kind": "image", "name": "x", '
            '"data": "https://evil.example/x.png"}]}]}]}',
            "data URL",
        ),
    ):
        bad.write_text(text)
        tab.page.set_input_files("#import-file", bad)
        tab.page.wait_for_selector(f".toast-error >> text={told}")
    assert tab.page.locator(".conversation").count() == 3


def test_answers_go_on_while_another_is_open(tab: Tab, stage: Live, model: Scripted) -> None:
    say_next(model, [said(text="Half")])  # and no end yet
    tab.ask("Slow", wait=False)
    tab.page.wait_for_selector("text=Half")
    tab.page.click("#new")
    tab.page.select_option("#model", "other")
    tab.ask("Quick")
    assert tab.texts("assistant") == ["Other says hi."]
    assert tab.page.locator(".pulse").count() == 1

    async def end() -> None:
        for chunk in (said(text=" and whole."), done()):
            model.receive(_frame(msgspec.structs.replace(chunk, id=asked(model).id)))

    stage.call(end())
    tab.page.wait_for_selector(".pulse", state="detached")
    tab.page.get_by_role("link", name="Slow").click()
    tab.page.wait_for_selector("text=Half and whole.")


def _frame(chunk: Chunk) -> Any:
    return Chunks([chunk])


# Fields of a request that a person does not set: the page's own, other names of the same, and OpenAI's bookkeeping.
NOT_SET = {
    "messages", "model", "n", "stream", "stream_options", "user", "logprobs", "top_logprobs", "return_progress",
    "max_completion_tokens", "response_format", "grammar", "json_schema", "regex", "choices", "lark", "typ_p",
    "repetition_penalty", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "min_tokens", "cache_salt",
    "metadata", "store", "service_tier", "verbosity", "prompt_cache_key", "safety_identifier", "modalities",
    "reasoning_format", "reasoning_budget", "thinking_token_budget", "thinking_budget_tokens", "max_new_tokens",
    "stop_tokens", "stop_token_ids", "include_stop", "include_stop_str_in_output", "skip_special_tokens",
    "structured_outputs",
}  # fmt: skip


def test_every_option_of_the_api_can_be_set(tab: Tab, model: Scripted) -> None:
    fields = tab.page.evaluate("async () => (await import('./static/js/fields.js')).FIELDS")
    known = {field.name: field.type for field in msgspec.structs.fields(ChatRequest)}
    assert {field["name"] for field in fields} == set(known) - NOT_SET
    values: dict[str, Any] = {}
    for field in fields:
        types = get_args(known[field["name"]])
        sample = {"number": 1, "lines": ["a", "b\n"], "flag": True, "text": "off"}.get(field["kind"])
        if field["kind"] == "json":
            sample = {"1": 2.0} if dict in [getattr(t, "__origin__", t) for t in types] else [1]
        if field["kind"] == "choice":
            sample = field["choices"][-1][0]
        values[field["name"]] = sample
    values["samplers"], values["tools"] = ["top_k", "temperature"], []
    text = {k: v if isinstance(v, str) else _text(v) for k, v in values.items()}
    tab.page.evaluate("s => localStorage.setItem('llamina.settings', JSON.stringify(s))", text)
    tab.open()
    tab.ask("hi")
    options = asked(model).options
    assert options["temperature"] == 1 and options["samplers"] == ["top_k", "temperature"]
    assert (
        options["dry_sequence_breakers"] == ["a", "b\n"] and options["mirostat"] == 2 and options["ignore_eos"] is True
    )
    for name in set(values) - {"tools", "lora", "chat_template_kwargs", "reasoning_effort", "logit_bias"}:
        assert name in options, name
    assert options["adapters"] == {"off": 1.0} and options["logit_bias"] == {1: 2.0}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and value and isinstance(value[0], str):
        return "\n".join(line.replace("\n", "\\n") for line in value)
    return json.dumps(value)


def test_settings_presets_and_system_prompt(tab: Tab, model: Scripted) -> None:
    tab.setting("System prompt").fill("Be brief.")
    tab.setting("Temperature").fill("0.3")
    tab.page.keyboard.press("Tab")
    tab.page.get_by_role("button", name="Keep as…").click()
    tab.page.get_by_label("Name of the preset").fill("Brief")
    tab.page.keyboard.press("Enter")
    tab.page.get_by_role("button", name="Reset all").click()
    assert tab.setting("Temperature").input_value() == ""
    tab.page.select_option("#preset", "Brief")
    assert tab.setting("Temperature").input_value() == "0.3"
    tab.page.keyboard.press("Escape")
    tab.ask("hi")
    assert asked(model).messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert asked(model).options["temperature"] == 0.3
    first = tab.page.evaluate("location.hash")
    tab.page.click("#new")
    tab.setting("Temperature").fill("1.1")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.ask("hi")
    tab.page.evaluate("hash => (location.hash = hash)", first)
    tab.page.wait_for_function("hash => document.querySelector('.current a').getAttribute('href') === hash", arg=first)
    assert tab.setting("Temperature").input_value() == "0.3", "settings belong to their conversation"
    tab.setting("Temperature").fill("-1")
    tab.page.keyboard.press("Tab")
    assert "must be at least 0" in tab.page.locator(".field-error:visible").inner_text()
    tab.page.keyboard.press("Escape")
    tab.page.fill("#input", "more")
    tab.page.click("#send")
    assert tab.page.locator("#settings").is_visible(), "what is no value is shown, not sent"


def test_key(tab: Tab) -> None:
    seen: list[str] = []
    tab.page.on("request", lambda r: "/v1/" in r.url and seen.append(r.headers.get("authorization", "")))
    tab.setting("API key").fill("secret-1")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Escape")
    tab.ask("hi")
    assert seen and set(seen) == {"Bearer secret-1"}
    tab.page.reload()
    tab.page.wait_for_selector("body[data-ready]")
    assert tab.setting("API key").input_value() == "secret-1"


def test_a_server_that_wants_a_key(tab: Tab) -> None:
    refusal = {"error": {"message": "an API key is needed", "type": "authentication_error"}}
    tab.page.route(
        re.compile(r"/v1/models$"),
        lambda route: (
            route.fulfill(status=401, json=refusal)
            if "authorization" not in route.request.headers
            else route.continue_()
        ),
    )
    tab.open()
    assert "an API key is needed" in tab.page.locator(".toast-error").inner_text()
    key = tab.setting("API key")
    assert key.evaluate("input => input === document.activeElement")
    key.fill("secret-2")
    tab.page.keyboard.press("Tab")
    tab.page.wait_for_function("() => document.getElementById('model').value === 'scripted'")
    tab.errors.clear()  # the browser logs that the answer was a 401


def test_load_progress(tab: Tab) -> None:
    """A model that is not loaded is loaded when it is chosen, and tells how far it is."""
    state: dict[str, Any] = {"status": "unloaded"}

    def models(route: Any) -> None:
        ready = {
            "id": "scripted",
            "object": "model",
            "meta": {"status": "ready", "n_ctx": 10, "n_params": 1, "size": 1},
        }
        route.fulfill(json={"data": [ready, {"id": "large", "object": "model", "meta": dict(state)}]})

    def load(route: Any) -> None:
        assert route.request.post_data_json == {"model": "large", "stream": False}
        state.update(status="loading", progress={"stage": "weights", "done": 3, "total": 4})
        waiting.append(route)

    waiting: list[Any] = []
    tab.page.route(re.compile(r"/v1/models$"), models)
    tab.page.route(re.compile(r"/api/generate$"), load)
    tab.open()
    assert tab.page.locator("#model option").all_inner_texts() == ["scripted", "large (not loaded)"]
    tab.page.select_option("#model", "large")
    tab.page.wait_for_selector("#loading:not([hidden])")
    tab.page.wait_for_function("() => document.getElementById('loading').value === 0.75")
    assert tab.page.locator("#loading").get_attribute("aria-label") == "Loading large: weights, 75 %"
    state.clear()
    state.update(status="ready", n_ctx=2048, n_params=7e9, size=4 << 30)
    waiting[0].fulfill(json={})
    tab.page.wait_for_selector("#loading", state="hidden")
    assert tab.page.locator("#model-facts").inner_text().startswith("7.0 B parameters")
