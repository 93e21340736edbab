"""llamina and llama.cpp as contestants: they do the work that is asked, and nothing is left behind."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llamina.bench.child import Child
from llamina.bench.contestant import Setup
from llamina.bench.memory import peak_bytes
from llamina.bench.ours import Llamina, enter
from llamina.bench.peer import KNOWN, best_at_depth, best_variants, find_peer, variants
from llamina.bench.task import Kind, Task
from llamina.errors import LlaminaError, RequestError
from skips import skip

TASKS = [
    Task("prompt", 20),
    Task("prompt", 20, 1, 23),
    Task("generate", 6),
    Task("generate", 6, 3),
    Task("generate", 6, 3, 23),
    Task("answer", 6, 3, prompt=9),
]


def quiet(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_clock_sees_one_step_per_generated_token(setup: Setup, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = enter(setup, quiet)
    engine, steps = ours._engine, []
    run = engine.runner.program.launch
    monkeypatch.setattr(engine.runner.program, "launch", lambda batch: (steps.append(batch.n_tokens), run(batch))[1])
    counted: list[int] = []
    until = Llamina._run

    def counting(self: Llamina, requests: object, length: int) -> None:
        steps.clear()
        until(self, requests, length)  # type: ignore[arg-type]
        counted.extend(steps)

    monkeypatch.setattr(Llamina, "_run", counting)
    assert ours.seconds(task, 0) > 0
    rest = [task.batch] * task.tokens
    assert counted == {"prompt": [20], "generate": rest, "answer": [task.batch * task.prompt, *rest[1:]]}[task.kind]
    assert not engine.core.running and not engine.core.waiting and engine.core.pages.free == engine.core.pages.total
    ours.close()


def test_many_prompts_are_filled_in_several_steps(stories: Path) -> None:
    """Those that are filled first wait for the others, within the pages that there are."""
    ours = enter(Setup("llamina", str(stories), 1, "f16", 8, 204, 512), quiet)
    assert ours.seconds(Task("generate", 4, 8, 200), 0) > 0
    ours.close()


def test_a_child_answers_and_counts_its_memory(setup: Setup) -> None:
    child = Child(setup, quiet)
    assert child.seconds(TASKS[0], 0) > 0
    assert child.seconds(TASKS[3], 0) > 0
    memory, peak = child.memory(), peak_bytes()
    if peak is None:
        assert memory is None, "a system that does not tell"
    else:
        assert memory is not None and Path(setup.path).stat().st_size < memory < child._ask("memory")
    child.close()
    assert not child._process.is_alive()


def test_errors_come_out_of_a_child(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"nonsense")
    with pytest.raises(LlaminaError, match="GGUF"):
        Child(replace(setup, path=str(tmp_path / "bad.gguf")), quiet)


def test_any_error_comes_out_of_a_child(setup: Setup) -> None:
    with pytest.raises(LlaminaError, match="llamina: AttributeError"):
        Child(setup, quiet)._ask("seconds", None, 0)


@pytest.mark.parametrize("peer", KNOWN, ids=lambda p: p.package)
def test_llama_cpp_does_every_task(setup: Setup, peer: object) -> None:
    known = next(p for p in KNOWN if p is peer)
    if not known.here:
        skip("peer", f"{known.package} is not installed")
    child = Child(replace(setup, engine=known.module), quiet)
    assert all(child.seconds(task, 0) > 0 for task in TASKS)
    child.close()


def test_the_fastest_flags_are_kept(setup: Setup) -> None:
    class Fake:
        def __init__(self, found: Setup) -> None:
            self._setup = found

        def seconds(self, task: Task, seed: int) -> float:
            assert task.depth == 0
            slow = self._setup.repack if task.kind == "prompt" else not self._setup.repack
            return 1.0 + slow + self._setup.tiled

        def close(self) -> None: ...

    best = best_variants(replace(setup, engine="xllamacpp"), TASKS, Fake)  # type: ignore[arg-type]
    assert best["prompt"].flags == "repack=0 GGML_CPU_TILED_MM=0"
    assert best["generate"].flags == "repack=1 GGML_CPU_TILED_MM=0"
    assert len(set(variants(setup))) == 4


def test_flash_attention_is_chosen_at_depth(setup: Setup) -> None:
    started: list[Setup] = []

    class Fake:
        def __init__(self, found: Setup) -> None:
            started.append(found)

        def seconds(self, task: Task, seed: int) -> float:
            assert task == Task("generate", 2, depth=9)
            return 2.0 if started[-1].flash else 1.0

        def close(self) -> None: ...

    best: dict[Kind, Setup] = dict.fromkeys(("prompt", "generate"), replace(setup, engine="llama_cpp"))
    tasks = [Task("prompt", 4), Task("generate", 2), Task("generate", 2, depth=9)]
    deep = best_at_depth(best, tasks, Fake)  # type: ignore[arg-type]
    assert {kind: found.flags for kind, found in deep.items()} == {
        "generate": "repack=1 GGML_CPU_TILED_MM=1 flash_attn=0"
    }
    assert [found.flash for found in started] == [True, False]
    assert not best_at_depth(dict.fromkeys(best, setup), tasks, Fake)  # type: ignore[arg-type]


def test_a_missing_peer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.bench.peer.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(RequestError, match="pip install llama-cpp-python or pip install xllamacpp or put llama-server"):
        find_peer("llama.cpp")
    with pytest.raises(RequestError, match="not one of"):
        find_peer("vllm")


def test_servers_come_first_where_serving_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.bench.peer.find_spec", lambda name: True)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/true")
    assert find_peer("llama.cpp").package == "llama-cpp-python"
    assert find_peer("llama.cpp", serving=True).package == "llama-server"
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert find_peer("llama.cpp", serving=True).package == "xllamacpp"


def test_a_server_that_ends_is_told(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LlaminaError, match="llama-server ended with code 3"):
        Child(replace(setup, engine="llama_server"), quiet)


SICK = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

Path(sys.argv[0]).with_name("pid").write_text(str(os.getpid()))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.send_error(500)

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def test_a_server_that_does_not_answer_is_told(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f"#!{sys.executable}\n{SICK}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    child = Child(replace(setup, engine="llama_server"), quiet)
    try:
        with pytest.raises(LlaminaError, match="llama-server did not answer 1 prompts"):
            child.seconds(Task("prompt", 20), 0)
    finally:
        child.close()
    with pytest.raises(ProcessLookupError):  # it has ended too
        os.kill(int((tmp_path / "pid").read_text()), 0)
