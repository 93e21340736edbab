"""`benchmarks/real.py`: turns, its table, and its mistakes; measuring is done by hand."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llamina import hub
from llamina.bench.task import Task

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "real.py"


@pytest.fixture(scope="module")
def real() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["real"] = module
    spec.loader.exec_module(module)
    return module


def test_both_run_in_turns(real: ModuleType) -> None:
    order: list[str] = []
    rates = iter([10.0, 4.0, 30.0, 6.0, 20.0, 5.0])

    def run(name: str) -> float:
        order.append(name)
        return next(rates)

    found = real.interleave(lambda: run("A"), lambda: run("B"), 3)
    assert order == ["A", "B"] * 3
    assert (found["llamina"], found["llama.cpp"], found["ratio"]) == (20.0, 5.0, 4.0)
    assert found["rates"] == {"llamina": [10.0, 30.0, 20.0], "llama.cpp": [4.0, 6.0, 5.0]}


@pytest.fixture
def record() -> dict[str, Any]:
    """A measurement that never happened."""
    result = {"file": "a.gguf", "work": "prompt of 256", "threads": 2, "command": "llama-bench -m a.gguf -p 256"}
    result |= {"llamina": 165.04, "llama.cpp": 91.0, "ratio": 1.8136, "rates": {}}
    machine = {"cpu": "Abacus", "cores": 2, "python": "3.11.0", "numba": "0.63", "system": "Linux", "load": 1.0}
    return {
        **{"llamina": "0.1.0", "kind": "real files", "time": "2026-01-01", "machine": machine, "name": "the small one"},
        **{"commit": "abc1234", "rounds": 5, "command": "python benchmarks/real.py", "llama_cpp": "1 (abc)"},
        "results": [result, {**result, "threads": 1, "ratio": 1.0}],
    }


def test_the_table_says_with_what_it_was_measured(real: ModuleType, record: dict[str, Any]) -> None:
    first, rule, *rows = real.markdown(record).splitlines()
    assert [cell.strip() for cell in first.split("|")[1:-1]] == [
        "file", "work", "threads", "llamina, tokens/s", "llama.cpp", "ratio",
    ]  # fmt: skip
    assert set(rule) == set("|-:")
    cells = [cell.strip() for cell in rows[0].split("|")[1:-1]]
    assert cells == ["a.gguf", "prompt of 256", "2", "165.0", "91.0", "1.81"]
    notes = "\n".join(rows)
    for fact in ("the small one: Abacus, 2 cores", "commit abc1234", "llama.cpp 1 (abc)", "load average 1.0"):
        assert fact in notes
    assert notes.count("`llama-bench -m a.gguf -p 256`") == 1


def test_an_earlier_record_is_a_table(
    real: ModuleType, record: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "real.json").write_text(json.dumps(record))
    real.main(["--table", str(tmp_path / "real.json")])
    assert capsys.readouterr().out == real.markdown(record) + "\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "--llama-bench is missing"),
        (["--fetch", "--models", "gpt-9"], "--models has 'gpt-9': known are smollm2"),
        (["--fetch", "--tasks", "poetry"], "--tasks has 'poetry': known are prompt of 256"),
    ],
)
def test_mistakes(real: ModuleType, given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        real.main(given)
    assert message in capsys.readouterr().err


def test_models_have_sources(real: ModuleType) -> None:
    assert {name for name in real.MODELS if name not in hub.CATALOGUE} == {"all-minilm-l6-v2"}


def test_flags_are_looked_for_with_short_runs(real: ModuleType) -> None:
    assert real.probe(Task("prompt", 256)) == Task("prompt", 256)
    assert real.probe(Task("generate", 64)) == Task("generate", 12)
    assert real.probe(Task("generate", 16, 32, 32)) == Task("generate", 12, 32, 8)
