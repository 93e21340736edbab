"""The plugin of the `llm` tool, with the tool itself."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamina.engine import load
from skips import import_peer

llm = import_peer("llm")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[Any]:
    from llamina.llm_plugin import LlaminaModel

    found = LlaminaModel("smollm2")
    found._engine = load(smollm2, context=2048)
    yield found
    found._engine.close()


def test_an_answer_streams(model: Any) -> None:
    response = model.prompt("Say hello.", system="Be brief.", max_tokens=8, temperature=0)
    pieces = list(response)
    assert len(pieces) > 2 and "".join(pieces) == response.text()
    assert response.usage().input > 10 and response.usage().output == 8
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
    assert response.text() == model._engine.chat(asked, max_tokens=8, temperature=0).text


def test_a_conversation_goes_on(model: Any) -> None:
    conversation = model.conversation()
    first = conversation.prompt("Name a colour.", max_tokens=6, temperature=0).text()
    second = conversation.prompt("And another?", max_tokens=6, temperature=0)
    messages = [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "And another?"},
    ]
    assert second.text() == model._engine.chat(messages, max_tokens=6, temperature=0).text


def test_a_schema_is_kept_to(model: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["n"],
    }
    found = json.loads(model.prompt("A number?", schema=schema, max_tokens=60, temperature=0).text())
    assert isinstance(found["n"], int)


def test_tools_are_called(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is made to call one; its result comes back to it as a message."""

    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    asked: list[Any] = []
    stream_chat = model._engine.stream_chat

    def forced(messages: Any, **options: Any) -> Any:
        asked.append(messages)
        return stream_chat(messages, **options | ({"tool_choice": "required"} if len(asked) == 1 else {}))

    monkeypatch.setattr(model._engine, "stream_chat", forced)
    chain = model.chain("What is 1 + 2?", tools=[add], options={"max_tokens": 60, "temperature": 0})
    chain.text()
    call, result = asked[1][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "add" and result["role"] == "tool"
    arguments = json.loads(call["tool_calls"][0]["function"]["arguments"])
    assert result["content"] == str(arguments["a"] + arguments["b"])


def test_mistakes_are_told(model: Any) -> None:
    with pytest.raises(Exception, match="nonsense"):
        model.prompt("x", nonsense=1)
    with pytest.raises(Exception, match="temperature"):
        model.prompt("x", temperature=-1).text()


def test_texts_become_vectors(golden: Any) -> None:
    from llamina.llm_plugin import LlaminaEmbeddings

    found = LlaminaEmbeddings(str(golden("stories260K.gguf")))
    vectors = list(found.embed_multi(["a llama", "an alpaca"]))
    assert len(vectors) == 2 and sum(x * x for x in vectors[0]) == pytest.approx(1, abs=1e-5)
    found._engine.close()


def test_a_model_without_a_chat_template_goes_on_with_the_text(golden: Any) -> None:
    from llamina.llm_plugin import LlaminaModel

    found = LlaminaModel(str(golden("stories260K.gguf")))
    text = found.prompt("Once upon a time", max_tokens=5, temperature=0, context=128).text()
    assert found._engine.context == 128
    assert text == found._engine.generate("Once upon a time", max_tokens=5, temperature=0).text
    found._engine.close()


def test_the_tool_finds_it(tmp_path: Path) -> None:
    """By the entry point, as if the package were installed with it."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["llm"]
    installed = tmp_path / "llamina_entry-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: llamina-entry\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[llm]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    paths = [str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "LLM_USER_PATH": str(tmp_path / "user")}
    command = [sys.executable, "-m", "llm"]
    listed = subprocess.run([*command, "models"], env=environ, capture_output=True, text=True, check=True).stdout
    assert "LlaminaModel: llamina/smollm2" in listed and "llamina/nomic-embed-text" not in listed
    listed = subprocess.run([*command, "embed-models"], env=environ, capture_output=True, text=True, check=True).stdout
    assert "llamina/nomic-embed-text" in listed and "llamina/smollm2" not in listed
