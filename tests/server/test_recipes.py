"""README.md, docs/recipes.md, docs/python.md and docs/tools.md: every block of code runs.

A block that cannot has a comment before it, `<!-- not run: peer: why -->`, and is listed with the other skips.
"""

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_server import PATIENCE, Live

import llamina
from convert.convert_folders import folder
from llamina.cli.app import INTERRUPTED
from lora_files import draw, save
from skips import import_peer, skip

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/recipes.md", "docs/python.md", "docs/tools.md")
ADDRESS = "http://127.0.0.1:8080"
BLOCK = re.compile(r"^(?:<!-- not run: (\w+): ([^\n]+) -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTES = {"llama.txt": "Llamas live in the Andes.", "tower.txt": "The tower is 330 metres tall."}


def blocks(*languages: str) -> list[Any]:
    """(lack, why, code) of the blocks of some languages, called by their page and line."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match[3] in languages:
                line = text[: match.start(3)].count("\n") + 1
                found.append(pytest.param(match[1], match[2], match[4], id=f"{page}:{line}"))
    return found


@pytest.fixture(scope="module")
def place(smollm2: Path, talker: Path, ranker: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the pages name. Models are tiny, but for smollm2."""
    here = tmp_path_factory.mktemp("place")
    models = {**dict.fromkeys(("model", "big", "small", "minilm", "in-F16"), talker), "reranker": ranker}
    for name, file in models.items():
        (here / f"{name}.gguf").symlink_to(file)
    for name, file in {"pirate": talker, "adapter": smollm2}.items():
        save(here / f"{name}.gguf", "llama", draw(file, ["blk.0.ffn_down.weight", "blk.1.ffn_down.weight"], 4, 1))
    folder(here / "Qwen3-0.6B", "qwen3")
    (here / "notes").mkdir()
    for name, text in NOTES.items():
        (here / "notes" / name).write_text(text)
    (here / "notes.txt").write_text("\n".join(NOTES.values()))
    (here / "text.txt").write_text(120 * "The quick brown fox jumps over the lazy dog. ")
    command = here / "bin" / "llamina"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m llamina "$@"\n')
    command.chmod(0o755)
    return here


# ---- Python ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lack", "why", "code"), blocks("python"))
def test_programs(
    lack: Any, why: str, code: str, live: Live, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As in a notebook: `engine` is there, and a cell may await. Answers are short, unless the code says how long."""
    program = compile(code.replace(ADDRESS, live.url), "block", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if lack:
        skip(lack, why)
    for name in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE):
        import_peer(name)
    monkeypatch.chdir(place)
    for module in ("engine", "aio"):
        monkeypatch.setattr(f"llamina.engine.{module}.MAX_TOKENS", 32)
    result = eval(program, {"llamina": llamina, "engine": live.engines["smollm2"]})
    if inspect.iscoroutine(result):
        asyncio.run(result)
    printed = capsys.readouterr()
    assert printed.out + printed.err


# ---- commands --------------------------------------------------------------------------------------------


def commands(code: str) -> list[str]:
    """The lines of a script, or those of a transcript that were typed; what follows them was printed."""
    lines = code.replace("\\\n", "").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")] or lines


COMMANDS = [
    pytest.param(*param.values[:2], command, id=f"{param.id}:{command.partition('#')[0].strip()}")
    for param in blocks("sh", "console")
    for command in commands(str(param.values[2]))
]


@pytest.mark.parametrize(("lack", "why", "command"), COMMANDS)
def test_commands(lack: Any, why: str, command: str, place: Path) -> None:
    """The line as a shell has it. A talk is given a question, and a server ended with Ctrl-C when it is ready."""
    if lack:
        skip(lack, why)
    serves, talks = command.startswith("llamina serve"), command.startswith("llamina chat")
    path = os.pathsep.join([str(place / "bin"), os.environ["PATH"]])
    own = {"PATH": path, "LLAMINA_MODEL": "model.gguf", "LLAMINA_PORT": "0", "LLAMINA_DATA": str(place / "data")}
    running = subprocess.Popen(
        ["sh", "-c", f"exec {command}" if serves else command],
        cwd=place,
        env=os.environ | own,
        stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if serves:
        assert running.stderr is not None and any(" is ready" in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
    said, told = running.communicate("hello\n" if talks else None, timeout=PATIENCE)
    assert running.returncode == (INTERRUPTED if serves else 0), told
    assert said or serves


def test_what_is_not_run() -> None:
    """Few blocks, each for a reason that may be one."""
    marked = [param for param in blocks("python", "sh", "console") if param.values[0]]
    assert len(marked) <= 5 and all(param.values[0] in ("hardware", "peer") for param in marked)
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert {match[3] for match in BLOCK.finditer(text)} == {"python", "sh", "console", "text"}, (
        "those that are looked for"
    )
    assert text.count("<!-- not run") == len(marked), "the comment stands right before its block"
