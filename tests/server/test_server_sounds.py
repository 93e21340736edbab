"""Sounds in the requests of OpenAI's APIs, transcriptions, and the errors that clients are told."""

import base64
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from live_server import Live, serving

from golden import sound_models
from hostile_sounds import FORMATS, HOSTILE, READABLE, broken
from llamina.engine import load

WAV = next(sound_models.sounds())
DATA = base64.b64encode(WAV).decode()
ALONE, ROWS = 6, 100  # tokens of the question, and of the sound
SOUND = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}


@pytest.fixture(scope="module")
def hearing(talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> Iterator[Live]:
    model = talking("llama-dense")
    engines = {
        "hears": load(model, mmproj=mmproj("meralion", 256), threads=1, max_sequences=2, context=512),
        "reads": load(model, threads=1, max_sequences=2),
    }
    with serving(engines) as server:
        yield server


def message(*parts: Any) -> Any:
    return [{"role": "user", "content": [*parts]}]


def test_every_api_hears_the_same_sound(hearing: Live) -> None:
    client = openai.OpenAI(base_url=f"{hearing.url}/v1", api_key="-")
    content = ({"type": "text", "text": "<5>"}, SOUND, {"type": "text", "text": "<9><11>"})
    said = client.chat.completions.create(model="hears", max_tokens=4, temperature=0, messages=message(*content))
    text = said.choices[0].message.content
    assert said.usage is not None and said.usage.prompt_tokens == ALONE + ROWS
    parts = ({"type": "input_text", "text": "<5>"}, SOUND, {"type": "input_text", "text": "<9><11>"})
    told = client.responses.create(model="hears", max_output_tokens=4, temperature=0, input=message(*parts))
    assert told.output_text == text and told.usage is not None and told.usage.input_tokens == ALONE + ROWS
    kept = client.responses.input_items.list(told.id)
    assert [part.type for part in kept.data[0].content] == ["input_text", "input_audio", "input_text"]  # type: ignore[union-attr]


def test_transcriptions(hearing: Live) -> None:
    """A conversation with llama-server's words, as a whole and as events."""
    client = openai.OpenAI(base_url=f"{hearing.url}/v1", api_key="-")
    asked: Any = {"model": "hears", "temperature": 0, "extra_body": {"max_tokens": 4}}
    found = client.audio.transcriptions.create(file=("speech.wav", WAV), prompt="<9>", language="<11>", **asked)
    content = ({"type": "text", "text": "<9> (language: <11>)"}, SOUND)
    said = client.chat.completions.create(model="hears", max_tokens=4, temperature=0, messages=message(*content))
    assert found.text == said.choices[0].message.content and found.usage is not None and said.usage is not None
    assert found.usage.input_tokens == said.usage.prompt_tokens and found.usage.output_tokens == 4  # type: ignore[union-attr]
    streamed = list(client.audio.transcriptions.create(file=("speech.wav", WAV), prompt="<9>", stream=True, **asked))
    assert [event.type for event in streamed[-1:]] == ["transcript.text.done"]
    assert "".join(event.delta for event in streamed if event.type == "transcript.text.delta") == streamed[-1].text
    plain = httpx.post(f"{hearing.url}/audio/transcriptions", files={"file": WAV}, data={"model": "hears"}, timeout=60)
    assert plain.json()["type"] == "transcript.text.done"


@pytest.mark.parametrize(
    ("fields", "file", "words"),
    [
        ({"model": "reads"}, WAV, "does not hear"),
        ({"model": "hears"}, b"no sound", "none of WAV"),
        ({"model": "hears", "response_format": "srt"}, WAV, "response_format"),
        ({"model": "hears", "speed": "2"}, WAV, "speed"),
        ({"model": "hears", "temperature": "hot"}, WAV, "temperature"),
        ({"model": "hears"}, None, "no file"),
    ],
)
def test_transcriptions_that_cannot_be(hearing: Live, fields: dict[str, str], file: bytes | None, words: str) -> None:
    files = {"file": file} if file is not None else {"other": (None, b"x")}
    answer = httpx.post(f"{hearing.url}/v1/audio/transcriptions", files=files, data=fields, timeout=60)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"], answer.text


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/chat/completions", {"model": "reads", "messages": message(SOUND)}, "does not hear"),
        (
            "/v1/chat/completions",
            {"messages": message({"type": "input_audio", "input_audio": {"data": "aGk="}})},
            "WAV",
        ),
        ("/v1/chat/completions", {"messages": message({"type": "audio", "audio": "/etc/passwd"})}, "base64"),
        ("/v1/responses", {"model": "reads", "input": message(SOUND)}, "does not hear"),
        ("/v1/responses", {"input": message({"type": "input_audio"})}, "input_audio.data must be"),
        ("/v1/responses", {"input": message({"type": "input_audio", "input_audio": {"data": ""}})}, "format is None"),
    ],
)
def test_what_clients_are_told(hearing: Live, path: str, body: dict[str, Any], words: str) -> None:
    answer = httpx.post(f"{hearing.url}{path}", json={"model": "hears"} | body, timeout=60)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"], answer.text


def test_props_and_models_tell_who_hears(hearing: Live) -> None:
    for model, hears in (("hears", True), ("reads", False)):
        modalities = httpx.get(f"{hearing.url}/props", params={"model": model}).json()["modalities"]
        assert modalities == {"vision": False, "video": False, "audio": hears}
        listed = httpx.get(f"{hearing.url}/v1/models/{model}").json()["architecture"]
        assert listed == {"input_modalities": ["text", *["audio"] * hears], "output_modalities": ["text"]}


@pytest.mark.parametrize("name", HOSTILE)
def test_sound_bombs(name: str, hearing: Live) -> None:
    """A file that is small, and endless once it is decoded, or damaged: 400, in bounded memory."""
    part = {"type": "input_audio", "input_audio": {"data": base64.b64encode(HOSTILE[name]).decode(), "format": "wav"}}
    body = {"model": "hears", "max_tokens": 1}
    tracemalloc.start()
    try:
        answer = httpx.post(f"{hearing.url}/v1/chat/completions", json=body | {"messages": message(part)}, timeout=60)
        assert answer.status_code == 400 or name in READABLE, answer.text
        assert answer.status_code in (200, 400) and tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    good = httpx.post(f"{hearing.url}/v1/chat/completions", json=body | {"messages": message(SOUND)}, timeout=60)
    assert good.status_code == 200


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_sounds(format: str, hearing: Live, golden: Callable[[str], Path]) -> None:
    """In a chat and as a transcription: an answer, or 400 in words, the same for both."""
    refused = 0
    for data in broken(format, 16, golden):
        part = {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}
        body = {"model": "hears", "max_tokens": 1}
        said = httpx.post(f"{hearing.url}/v1/chat/completions", json=body | {"messages": message(part)}, timeout=60)
        form = {key: str(value) for key, value in body.items()}
        heard = httpx.post(f"{hearing.url}/v1/audio/transcriptions", files={"file": data}, data=form, timeout=60)
        assert said.status_code == heard.status_code in (200, 400), (said.text, heard.text)
        if said.status_code == 400:
            refused += 1
            assert "sound" in said.json()["error"]["message"] and "sound" in heard.json()["error"]["message"]
    assert refused > 0
