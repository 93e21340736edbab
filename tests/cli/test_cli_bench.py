"""`llamina bench`: what it prints, and when it fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from skips import import_peer

Invoke = Callable[..., Result]
TINY = ("-p", 8, "-n", 3, "-r", 1, "-t", 1)


def result(name: str, engine: str, rate: float, kind: str = "generate", **more: Any) -> dict[str, Any]:
    known = {"name": name, "engine": engine, "rate": rate, "unit": "tokens/s", "kind": kind, "spread": 0.01}
    tail = {"first_token_seconds": 0.5, "macs_per_second": 2e9}
    return {**known, **(tail if kind == "prompt" else {"bytes_per_second": 3e9, "bandwidth_share": 0.25}), **more}


@pytest.fixture
def record() -> dict[str, Any]:
    """A measurement against llama.cpp that never happened."""
    return {
        "llamina": "0.1.0",
        "machine": {"cpu": "Abacus", "cores": 2, "python": "3.11.0", "load": 2.0},
        "file": {"name": "a.gguf", "bytes": 2_000_000},
        "settings": {"threads": 2, "kv_type": "f16", "repeats": 5},
        "read_bandwidth": 12e9,
        "weight_bytes_per_token": 1_000_000,
        "memory": {"llamina": 3_000_000, "llama.cpp": None},
        "peer": {"package": "xllamacpp", "version": "1", "flags": {"prompt": "repack=1"}},
        "results": [
            result("pp8", "llamina", 30.0, "prompt", ratio=1.5),
            result("pp8", "llama.cpp", 20.0, "prompt"),
            result("tg3", "llamina", 10.0, ratio=0.8),
            result("tg3", "llama.cpp", 12.5),
        ],
    }


def test_a_record_has_everything(invoke: Invoke, stories: Path) -> None:
    found = invoke("bench", "-m", stories, *TINY, "-b", "1,2", "-d", "0,20", "--kv-type", "f32", "--json")
    assert found.exit_code == 0, found.stderr
    data = json.loads(found.stdout)
    names = ["pp8", "pp8 @ d20", "tg3", "tg3 b2", "tg3 @ d20", "tg3 b2 @ d20"]
    assert [r["name"] for r in data["results"]] == names
    assert all(r["rate"] > 0 and r["engine"] == "llamina" and len(r["seconds"]) == 1 for r in data["results"])
    assert data["results"][0]["first_token_seconds"] > 0 and data["results"][0]["macs_per_second"] > 0
    assert data["results"][2]["bandwidth_share"] > 0 and data["read_bandwidth"] > 0
    assert data["settings"] == {"threads": 1, "kv_type": "f32", "repeats": 1}
    assert data["file"]["name"] == stories.name and data["peer"] is None
    assert data["machine"]["cpu"] and data["command"].startswith("llamina")


def test_plain_text_when_piped_and_the_gate(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    """An impossible rate in the baseline is a fall, a tiny one is not."""
    rates = [{"name": n, "engine": "llamina", "rate": r, "unit": "tokens/s"} for n, r in (("pp8", 1e9), ("tg3", 1e-9))]
    path = tmp_path / "before.json"
    path.write_text(json.dumps({"machine": {"cpu": "Abacus"}, "results": rates}))
    found = invoke("bench", "-m", stories, *TINY, "--baseline", path, "--threshold", "5%")
    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    assert lines[0].split() == ["test", "tokens/s", "±", "first", "token", "GB/s", "of", "bandwidth", "GMAC/s"]
    assert lines[1].startswith("pp8 ") and lines[2].startswith("tg3 ")
    assert "pp8 fell by 100.0%: 1000000000.0 → " in found.stderr and "tg3 fell" not in found.stderr
    assert "cpu was Abacus" in found.stderr
    path.write_text(json.dumps({"machine": {"cpu": "Abacus"}, "results": rates[1:]}))
    found = invoke("bench", "-m", stories, *TINY, "--baseline", path)
    assert found.exit_code == 0 and "no rate fell by more than 5.0%" in found.stderr


def test_llama_cpp_stands_beside(invoke: Invoke, stories: Path) -> None:
    import_peer("xllamacpp")
    found = invoke("bench", "-m", stories, *TINY, "--against", "xllamacpp", "--json")
    assert found.exit_code == 0, found.stderr
    data = json.loads(found.stdout)
    assert [(r["name"], r["engine"]) for r in data["results"]] == [
        (name, engine) for name in ("pp8", "tg3") for engine in ("llamina", "llama.cpp")
    ]
    ours, theirs = data["results"][:2]
    assert ours["ratio"] == pytest.approx(ours["rate"] / theirs["rate"])
    assert data["peer"]["package"] == "xllamacpp" and set(data["peer"]["flags"]) == {"prompt", "generate"}
    assert set(data["memory"]) == {"llamina", "llama.cpp"}


def test_tables(record: dict[str, Any]) -> None:
    from llamina.cli.rates import model_notes, model_table

    table = model_table(record)
    assert table.rows == [
        ["pp8", "30.0", "1%", "20.0", "1.50", "500 ms", "", "", "2.0"],
        ["tg3", "10.0", "1%", "12.5", "0.80", "", "3.00", "25%", ""],
    ]
    first, rule, *rest = table.markdown().splitlines()
    assert first.count("|") == rule.count("|") == rest[0].count("|") == 10
    assert set(rule) == set("|-:") and len(rest) == 2
    assert len({len(line) for line in table.markdown().splitlines()}) == 1
    notes = "\n".join(model_notes(record))
    assert (
        "other programs were running: load average 2.0" in notes
        and "llama.cpp unknown" in notes
        and "xllamacpp 1" in notes
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "0", "-n", "0"], "there is nothing to measure"),
        (["-b", "0"], "0 is less than 1"),
        (["-b", "1,x"], "not a list of whole numbers"),
        (["-b", "513"], "more than the 512 sequences"),
        (["--threshold", "much"], "not a percentage"),
        (["--threshold", "100"], "not between"),
        (["--against", "vllm"], "llama.cpp"),
    ],
)
def test_what_cannot_be_measured(invoke: Invoke, stories: Path, arguments: list[str], message: str) -> None:
    found = invoke("bench", "-m", stories, *arguments)
    assert found.exit_code == 2 and message in found.stderr and not found.stdout


def test_what_is_missing_is_said_before_measuring(
    invoke: Invoke, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamina.bench.peer.find_spec", lambda name: None)
    monkeypatch.setattr("llamina.bench.plot.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("llamina.bench.measure_model", lambda *a: pytest.fail("it measured"))
    found = invoke("bench", "-m", stories, "--against", "llama.cpp")
    assert found.exit_code == 2 and "llama.cpp is not installed: pip install" in found.stderr
    found = invoke("bench", "-m", stories, "--plot", tmp_path / "x.png")
    assert found.exit_code == 2 and "llamina[plot]" in found.stderr
    (tmp_path / "no.json").write_text("[]")
    found = invoke("bench", "-m", stories, "--baseline", tmp_path / "no.json")
    assert found.exit_code == 2 and "is not the output of `llamina bench --json`" in found.stderr


def test_a_plot(record: dict[str, Any], tmp_path: Path) -> None:
    import_peer("matplotlib")
    from llamina.bench.plot import draw_plot

    draw_plot(record, tmp_path / "rates.png")
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


SERVE = ("-c", 3, "-p", 5, "-n", 12, "--prefix", 50, "-r", 1, "-t", 1)


def test_serving(invoke: Invoke, stories: Path) -> None:
    found = invoke("bench", "serve", "-m", stories, *SERVE, "--json")
    assert found.exit_code == 0, found.stderr
    data = json.loads(found.stdout)
    results = {r["name"]: r for r in data["results"]}
    masks = ("json schema: mask", "grammar: mask")
    compared = ("json schema: answer", "grammar: answer", "copying", "prose")
    assert set(results) == {"pg5+12", "pg5+12 b3", "second turn", *masks, *compared}
    assert all(r["rate"] > 0 and r["engine"] == "llamina" for r in results.values())
    alone, together, turn = results["pg5+12"], results["pg5+12 b3"], results["second turn"]
    assert alone["speedup"] == 1 and together["speedup"] == pytest.approx(together["rate"] / alone["rate"])
    assert turn["first_token_seconds"] > 0 and turn["plain_first_token_seconds"] > 0
    for name in masks:
        assert 0 < results[name]["microseconds"] <= results[name]["slowest"]
        assert len(results[name]["seconds"]) + results[name.replace("mask", "answer")]["forced"] == 12
    for name in compared:
        assert results[name]["ratio"] == pytest.approx(results[name]["rate"] / results[name]["plain_rate"])
    assert results["copying"]["drafted"] >= results["copying"]["accepted"]
    assert data["kind"] == "serving" and data["settings"]["requests"] == 3 and data["peer"] is None


def test_serving_beside_llama_cpp_as_a_table(invoke: Invoke, stories: Path) -> None:
    import_peer("xllamacpp")
    found = invoke("bench", "serve", "-m", stories, *SERVE, "--against", "xllamacpp", "--md")
    assert found.exit_code == 0, found.stderr
    first, _, *rows = [line.split("|")[1:-1] for line in found.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in first] == ["test", "result", "compared with", "ratio"]
    names = [row[0].strip() for row in rows]
    assert names[:3] == ["3 requests", "3 requests, llama.cpp", "second turn, first token"] and len(names) == 9
    assert all("one after the other" in row[2] for row in rows[:2])
    assert "llama.cpp is xllamacpp" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prefix", "8"], "8 is not in the range"),
        (["-c", "1"], "one number from 2 on"),
        (["-c", "2,3"], "one number from 2 on"),
        (["--rate", "1"], "--rate has no effect without --url"),
        (["-c", "600"], "more than the 512 sequences"),
    ],
)
def test_what_cannot_be_served(invoke: Invoke, stories: Path, arguments: list[str], message: str) -> None:
    found = invoke("bench", "serve", "-m", stories, "-n", 2, "-p", 1, "-r", 1, *arguments)
    assert found.exit_code == 2 and message in found.stderr and not found.stdout


def test_kernels(invoke: Invoke, tmp_path: Path) -> None:
    arguments = ("bench", "kernels", "--format", "Q8_0", "-t", "1", "--size", "0.01", "-p", "4", "-r", "1")
    found = invoke(*arguments, "--json")
    assert found.exit_code == 0, found.stderr
    data = json.loads(found.stdout)
    assert [r["name"] for r in data["results"]] == ["Q8_0 n1 t1", "Q8_0 n4 t1"]
    for r in data["results"]:
        r["rate"] *= 1e6
    (tmp_path / "before.json").write_text(json.dumps(data))
    found = invoke(*arguments, "--md", "--baseline", tmp_path / "before.json")
    assert found.exit_code == 1 and "Q8_0 n1 t1 fell by" in found.stderr
    assert found.stdout.startswith("| format | GB/s, 1 thread | GMAC/s, 1 thread |\n|---")
    assert invoke("bench", "kernels", "-h").output.count("Examples:") == 1
    assert invoke("bench", "kernels", "--format", "Q9_Z").exit_code == 2
