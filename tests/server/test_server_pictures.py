"""Pictures in the requests of every API, and the errors that clients are told."""

import base64
import io
import json
import shutil
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from live_server import Live, serving
from PIL import Image

from damage import damaged
from golden import vision_models
from hostile_pictures import HOSTILE, READABLE
from hostile_pictures import png as header
from llamina.engine import load
from llamina.server.ollama.file_info import facts

PIXELS = next(vision_models.pictures())
ALONE, ROWS = 6, 16  # tokens of the question, and of the picture


def png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG")
    return file.getvalue()


DATA = base64.b64encode(png()).decode()
URL = f"data:image/png;base64,{DATA}"


class Pictures(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        place = {"/cat.png": (200, png()), "/moved.png": (302, b""), "/no.png": (404, b"")}
        status, body = place[self.path]
        self.send_response(status)
        self.send_header("Location", "/cat.png")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Tell nobody."""


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """The address of a host that has pictures."""
    server = HTTPServer(("127.0.0.1", 0), Pictures)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def seeing(talking: Callable[[str], Path], mmproj: Callable[..., Path], web: str) -> Iterator[Live]:
    sight = mmproj("llava", 256)
    engines = {
        "sees": load(talking("llama-dense"), mmproj=sight, threads=1, max_sequences=2, picture_hosts=[web]),
        "reads": load(talking("llama-dense"), threads=1, max_sequences=2),
    }
    with serving(engines) as server:
        yield server


def chat(live: Live, url: str, model: str = "sees", **more: Any) -> httpx.Response:
    picture = {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
    content = [{"type": "text", "text": "<5>"}, picture, {"type": "text", "text": "<9><11>"}]
    body = {"model": model, "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": content}]}
    return httpx.post(f"{live.url}/v1/chat/completions", json=body | more, timeout=60)


def test_every_api_shows_the_same_picture(seeing: Live) -> None:
    """The first four tokens of the answer, and the count of the prompt's, whichever client asks."""
    client = openai.OpenAI(base_url=f"{seeing.url}/v1", api_key="-")
    content: Any = [
        {"type": "text", "text": "<5>"},
        {"type": "image_url", "image_url": {"url": URL}},
        {"type": "text", "text": "<9><11>"},
    ]
    said = client.chat.completions.create(
        model="sees", max_tokens=4, temperature=0, messages=[{"role": "user", "content": content}]
    )
    text = said.choices[0].message.content
    assert said.usage is not None and said.usage.prompt_tokens == ALONE + ROWS
    parts: Any = [
        {"type": "input_text", "text": "<5>"},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": "<9><11>"},
    ]
    told = client.responses.create(
        model="sees", max_output_tokens=4, temperature=0, input=[{"role": "user", "content": parts}]
    )
    assert told.output_text == text and told.usage is not None and told.usage.input_tokens == ALONE + ROWS
    more = client.responses.create(
        model="sees", max_output_tokens=4, temperature=0, input="<7>", previous_response_id=told.id
    )
    assert more.usage is not None and more.usage.input_tokens > 2 * ALONE + ROWS
    kept = client.responses.input_items.list(told.id)
    assert [part.type for part in kept.data[0].content] == ["input_text", "input_image", "input_text"]  # type: ignore[union-attr]
    blocks: Any = [
        {"type": "text", "text": "<5>"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "text", "text": "<9><11>"},
    ]
    other = anthropic.Anthropic(base_url=seeing.url, api_key="-")
    messages: Any = [{"role": "user", "content": blocks}]
    greedy = {"temperature": 0}
    answer = other.messages.create(model="sees", max_tokens=4, messages=messages, extra_body=greedy)
    usage = answer.usage
    assert answer.content[0].text == text  # type: ignore[union-attr]
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == ALONE + ROWS
    assert other.messages.count_tokens(model="sees", messages=messages).input_tokens == ALONE + ROWS


def test_ollamas_images(seeing: Live) -> None:
    client = ollama.Client(seeing.url)
    options = {"num_predict": 4, "temperature": 0}
    said = client.chat("sees", [{"role": "user", "content": "<9>", "images": [png()]}], options=options)
    made = client.generate("sees", "<9>", images=[DATA], options=options)
    assert said.message.content == made.response
    assert said.prompt_eval_count == made.prompt_eval_count == 4 + ROWS
    assert made.context is None  # rows are no tokens
    for body in ({"raw": True}, {"suffix": "x"}, {"template": "{{ .Prompt }}"}, {"images": [7]}):
        whole = {"model": "sees", "prompt": "<9>", "images": [DATA], **body}
        assert httpx.post(f"{seeing.url}/api/generate", json=whole).status_code == 400, body


def test_streams_and_several_answers(seeing: Live) -> None:
    whole = chat(seeing, URL, n=2).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == [
        whole["choices"][0]["message"]["content"]
    ] * 2
    assert whole["usage"]["prompt_tokens"] == ALONE + ROWS
    events = chat(seeing, URL, stream=True).text
    assert events.count("data: ") > 3 and "[DONE]" in events


def test_web_addresses(seeing: Live, web: str) -> None:
    """Fetched from a host that the operator allows, and from no other; redirections lead nowhere."""
    fetched, given = (chat(seeing, url).json() for url in (f"http://{web}/cat.png", URL))
    assert fetched["choices"] == given["choices"]
    for url, message in (
        ("https://example.org/cat.png", "'example.org' are not fetched"),
        (f"http://{web}@example.org/cat.png", "'example.org' are not fetched"),
        (f"http://{web}/moved.png", "status is 302"),
        (f"http://{web}/no.png", "status is 404"),
        ("file:///etc/passwd", "no picture"),
        ("/etc/passwd", "no picture"),
        ("data:image/png;base64,aGk=", "none of PNG"),
    ):
        answer = chat(seeing, url)
        assert answer.status_code == 400 and message in answer.json()["error"]["message"], (url, answer.text)


def test_damaged_files(seeing: Live) -> None:
    """An answer, or an error that is the client's own; the server goes on."""
    found = []
    for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP"):
        file = io.BytesIO()
        Image.fromarray(PIXELS).save(file, format)
        for data in damaged(file.getvalue(), 8, range(8, 64)):
            answer = chat(seeing, f"data:;base64,{base64.b64encode(data).decode()}", max_tokens=1)
            found.append(answer.status_code)
            assert answer.status_code == 200 or answer.json()["error"]["type"] == "invalid_request_error"
    assert set(found) == {200, 400} and chat(seeing, URL).status_code == 200


def test_a_picture_that_a_function_returns(seeing: Live) -> None:
    """In the Responses API, as in Anthropic's."""
    client = openai.OpenAI(base_url=f"{seeing.url}/v1", api_key="-")

    def count(output: Any) -> int:
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": "c", "output": output}
        items: Any = [{"role": "user", "content": "<5>"}, call, result]
        told = client.responses.create(model="sees", max_output_tokens=2, input=items)
        kept = client.responses.input_items.list(told.id)
        assert any(item.type == "function_call_output" for item in kept.data)
        assert told.usage is not None
        return told.usage.input_tokens

    text = {"type": "input_text", "text": "<9>"}
    assert count([text, {"type": "input_image", "image_url": URL}]) == count([text]) + ROWS == count("<9>") + ROWS


def test_a_model_that_reads_text_only(seeing: Live) -> None:
    answer = chat(seeing, URL, model="reads")
    assert answer.status_code == 400 and "reads text only" in answer.json()["error"]["message"]
    props = [httpx.get(f"{seeing.url}/props", params={"model": name}).json() for name in ("sees", "reads")]
    assert [found["modalities"]["vision"] for found in props] == [True, False]


def test_pictures_that_are_not_complete(seeing: Live) -> None:
    def post(path: str, body: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{seeing.url}{path}", json={"model": "sees", **body}, timeout=60)

    def message(part: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"role": "user", "content": [part]}]

    for path, body in (
        ("/v1/chat/completions", {"messages": message({"type": "image_url"})}),
        ("/v1/chat/completions", {"messages": message({"type": "image_url", "image_url": URL, "x": 1})}),
        ("/v1/chat/completions", {"messages": message({"type": "image", "image": "/etc/passwd"})}),
        ("/v1/responses", {"input": message({"type": "input_image", "file_id": "file-1"})}),
        ("/v1/responses", {"input": message({"type": "input_image", "image_url": URL, "detail": "wild"})}),
        ("/v1/messages", {"max_tokens": 1, "messages": message({"type": "image", "source": {"type": "file"}})}),
    ):
        assert post(path, body).status_code == 400, (path, body)


TINY = "a picture of one pixel"  # crashed vLLM's Idefics3
BOMBS = {**HOSTILE, TINY: header(1, 1, zlib.compress(bytes(4)))}


@pytest.mark.parametrize("name", BOMBS)
def test_cve_2026_22773_picture_bombs(name: str, seeing: Live) -> None:
    """A file that is small, and enormous once it is unpacked, or that no encoder can take: 400, in bounded memory."""
    url = f"data:image/png;base64,{base64.b64encode(BOMBS[name]).decode()}"
    tracemalloc.start()
    try:
        answer = chat(seeing, url)
        assert answer.status_code == (200 if name in (*READABLE, TINY) else 400), answer.text
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
    assert chat(seeing, URL).status_code == 200


def test_what_lists_say(talking: Callable[[str], Path], mmproj: Callable[..., Path], tmp_path: Path) -> None:
    """Ollama's clients are told of the encoder beside a model."""
    alone, model = talking("llama-dense"), shutil.copy(talking("llama-dense"), tmp_path / "tiny.gguf")
    shutil.copy(mmproj("llava", 256), tmp_path / "mmproj-tiny.gguf")
    assert "vision" in facts(str(model)).capabilities and "vision" not in facts(str(alone)).capabilities


def thread_run(live: Live, *parts: dict[str, Any], model: str = "sees") -> dict[str, Any]:
    """The last event of a run about a message with these parts."""
    content = [{"type": "text", "text": "<5>"}, *parts, {"type": "text", "text": "<9><11>"}]
    body = {"model": model, "thread": {"messages": [{"role": "user", "content": content}]}, "stream": True}
    more = {"temperature": 0, "max_completion_tokens": 4}
    answer = httpx.post(f"{live.url}/v1/threads/runs", json=body | more, timeout=60)
    if answer.status_code != 200:
        return dict(answer.json()["error"])
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return dict(json.loads(lines[-1]))


def upload(live: Live, purpose: str = "vision") -> str:
    files = {"file": ("cat.png", png())}
    return str(httpx.post(f"{live.url}/v1/files", data={"purpose": purpose}, files=files).json()["id"])


def test_pictures_in_threads(seeing: Live) -> None:
    id = upload(seeing)
    file = {"type": "image_file", "image_file": {"file_id": id}}
    url = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
    for part in (file, url):
        run = thread_run(seeing, part)
        assert run["usage"]["prompt_tokens"] == ALONE + ROWS, run
        messages = httpx.get(f"{seeing.url}/v1/threads/{run['thread_id']}/messages").json()["data"]
        answer, question = messages
        kind = part["type"]
        assert question["content"][1] == {"type": kind, kind: {"detail": "auto", **part[kind]}}  # type: ignore[dict-item]
        told = chat(seeing, URL).json()["choices"][0]["message"]["content"]
        assert answer["content"][0]["text"]["value"] == told
    assert "reads text only" in thread_run(seeing, url, model="reads")["last_error"]["message"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image_file", "image_file": {"file_id": "file-nobody"}}, "no file"),
        ({"type": "image_file", "image_file": {}}, "must be a text"),
        ({"type": "image_file", "image_url": {"url": URL}}, "must have type and image_file"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "most"}}, "must be one of auto"),
        ({"type": "image_url", "image_url": {"url": URL, "size": 3}}, "detail alone"),
        ({"type": ["text"]}, "text with a text"),
        ({"type": "input_image"}, "text with a text"),
    ],
)
def test_pictures_that_threads_refuse(seeing: Live, part: dict[str, Any], message: str) -> None:
    assert message in thread_run(seeing, part)["message"]


def test_files_that_threads_refuse(seeing: Live) -> None:
    other, gone = upload(seeing, "batch"), upload(seeing)
    part = {"type": "image_file", "image_file": {"file_id": other}}
    assert "the purpose" in thread_run(seeing, part)["message"]
    content = [{"type": "image_file", "image_file": {"file_id": gone}}]
    thread = httpx.post(f"{seeing.url}/v1/threads", json={"messages": [{"role": "user", "content": content}]}).json()
    httpx.delete(f"{seeing.url}/v1/files/{gone}")
    answer = httpx.post(f"{seeing.url}/v1/threads/{thread['id']}/runs", json={"model": "sees", "stream": True})
    assert "deleted or has expired" in answer.text
