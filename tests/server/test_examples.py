"""examples/: every program runs, with small models in the place of those that it would fetch."""

import ast
import io
import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_server import Live

import llamina
from lora_files import draw, save
from skips import import_peer

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> Run:
    """`run("chat", "--model", path, typed="hi")`: what a program prints, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(name: str, *arguments: object, typed: str = "") -> str:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        printed: str = capsys.readouterr().out
        return printed

    return call


@pytest.fixture
def stories(golden: Callable[[str], Path]) -> Path:
    return golden("stories260K.gguf")


def test_twelve_are_listed() -> None:
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\)", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == [path.name for path in PROGRAMS] and len(listed) == 12


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_each_is_a_page_that_says_how_it_is_run(path: Path) -> None:
    """And uses nothing of llamina but what is public."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert 20 <= len(text.splitlines()) <= 60
    assert f"\n    python examples/{path.name}" in (ast.get_docstring(tree) or "")
    assert not re.search(r"(from|import) llamina\.", text)


def test_chat(run: Run, smollm2: Path) -> None:
    out = run("chat", "--model", smollm2, "--max-tokens", 12, typed="Hello!\nWhat is a llama?\n")
    first, second = re.findall(r"(\d+) tokens, \d+ a second; (\d+) of the prompt's (\d+)", out)
    assert 1 <= int(first[0]) <= 12
    assert int(second[1]) >= int(first[2]) // 16 * 16 > 0, "the first question is in the KV cache"


def test_stream(run: Run, live: Live) -> None:
    out = run("stream", "The sky is", "--model", "smollm2", "--max-tokens", 20, "--seed", 3)
    text = live.engines["smollm2"].generate("The sky is", max_tokens=20, seed=3, temperature=0.7).text
    told, _, doubts = re.sub(r"\033\[\d+m", "", out).partition("\n\n")
    assert told.startswith(f"The sky is{text}") and out.count("\033[0m") > 10
    assert len(re.findall(r"^ *\d+% '.*' +of '.*' \d+%", doubts, re.MULTILINE)) == 5


def test_tools(run: Run, smollm2: Path) -> None:
    out = run("tools", "What is 6 times 7?", "--model", smollm2)
    called = re.search(r"calls: (weekday|multiply) (\{.*\})\n +tool: (.+)", out)
    assert called and set(json.loads(called[2])) in ({"a", "b"}, {"year", "month", "day"})


def test_structured(run: Run, smollm2: Path) -> None:
    out = run("structured", "--model", smollm2)
    fields = json.loads(out[: out.rindex("Event(")])
    assert set(fields) == {"title", "day", "hour", "people", "place"} and 0 <= fields["hour"] <= 23
    assert f"Event(title={fields['title']!r}, day={fields['day']!r}" in out


def test_search(run: Run, smollm2: Path, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("# Animals\n\nLlamas live in the mountains.\n\nWhales live in the sea.\n")
    (folder / "b.txt").write_text("The tower is made of iron.")
    search = ("search", folder, "Llamas live in the mountains.", "--model", smollm2, "--top", 2)
    first = run(*search)
    assert re.match(r"\n0\.\d+  a\.md: # Animals Llamas live in the mountains\.\n\n0\.\d+  ", first)
    kept = (folder / ".vectors.npz").stat().st_mtime_ns
    assert run(*search) == first and (folder / ".vectors.npz").stat().st_mtime_ns == kept
    (folder / "b.txt").write_text("The tower is made of wood.")
    run(*search)
    assert (folder / ".vectors.npz").stat().st_mtime_ns > kept


def test_rerank(run: Run, ranker: Path) -> None:
    documents = ["a llama", "a rock", "Once upon a time", "grass"]
    out = run("rerank", "what eats grass?", "--model", ranker, "--top", 2, typed="\n".join(documents))
    with llamina.load(ranker) as engine:
        scores = engine.rerank("what eats grass?", documents)
    best = sorted(zip(scores, documents, strict=True), reverse=True)[:2]
    assert [line[31:] for line in out.splitlines()] == [document for _, document in best]
    assert "Llamas graze" in run("rerank", "food?", "--model", ranker, "--top", 4)


def test_lora(run: Run, smollm2: Path, live: Live, tmp_path: Path) -> None:
    names = [f"blk.{layer}.ffn_down.weight" for layer in range(4)]
    for seed, name in enumerate(("pirate", "brief")):
        save(tmp_path / f"{name}.gguf", "llama", draw(smollm2, names, 4, seed, 1.0))
    out = run("lora", "pirate.gguf", "brief.gguf=0.5", "--model", smollm2, "--max-tokens", 20, "--question", "Hello!")
    parts = dict(part.strip().split("\n", 1) for part in out.split("── ")[1:])
    assert list(parts) == ["the model alone", "1 × pirate", "0.5 × brief", "1 × pirate + 0.5 × brief"]
    assert parts["the model alone"] == live.engines["smollm2"].chat("Hello!", max_tokens=20, temperature=0).text.strip()
    assert len(set(parts.values())) == 4


def test_speculation(run: Run, stories: Path) -> None:
    out = run("speculation", "--model", stories, "--draft", stories, "--prompt", "Once upon a time", "--max-tokens", 60)
    assert "the same text each time" in out
    table = {line.split()[0]: line.split()[2:] for line in out.splitlines()[1:4]}
    assert list(table) == ["off", "ngram", "draft"] and table["off"] == ["0", "-"]


def test_batch(run: Run, smollm2: Path, live: Live, tmp_path: Path) -> None:
    questions = ["What is the capital of Peru?", "Name a colour.", "What is 2 + 2?"]
    (tmp_path / "questions.txt").write_text("\n\n".join(questions))
    lines = run("batch", "questions.txt", "--model", smollm2, "--max-tokens", 10, "--at-once", 2).splitlines()
    for line, question in zip(map(json.loads, lines), questions, strict=True):
        messages = [{"role": "system", "content": "Answer in one sentence."}, {"role": "user", "content": question}]
        alone = live.engines["smollm2"].chat(messages, max_tokens=10, temperature=0)
        assert line == {"question": question, "answer": alone.text, "finish_reason": alone.finish_reason}


def test_client(run: Run, live: Live) -> None:
    import_peer("openai")
    questions = ["Name a colour.", "What is a llama?"]
    out = run("client", *questions, "--url", f"{live.url}/v1", "--max-tokens", 12)
    answers = re.findall(r"^(.+?)  \[first token [\d.]+ s, all [\d.]+ s\]\n    \S", out, re.MULTILINE)
    assert sorted(answers) == questions


def test_snapshot(run: Run, stories: Path) -> None:
    """Told in three pieces, the story is the same."""
    begin = ("snapshot", "--prompt", "Once upon a time", "--model", stories)
    whole = run(*begin, "--steps", 30, "--file", "whole").partition("\n\n")[0]
    run(*begin, "--steps", 10)
    run("snapshot", "--model", stories, "--steps", 10)
    last = run("snapshot", "--model", stories, "--steps", 10)
    assert last.partition("\n\n")[0].replace("|", "").strip() == whole.strip()
    assert "tokens are in story.snapshot" in last
