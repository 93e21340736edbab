"""`llamina bench latency`, `memory`, `speculative`, `energy`, `tokenizer`; shapes, instruction sets and CSV."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from llamina.backends.cpu import features
from llamina.bench.shapes import SHAPES, Shape

Invoke = Callable[..., Result]
VERBS = {
    "latency": ("-c", "1,2", "-p", 8, "-n", 3, "-r", 1, "-t", 1),
    "memory": ("-c", 2, "-p", 8, "-n", 3, "-t", 1, "--interval", 1),
    "speculative": ("-k", 2, "--chance", "0.9", "-n", 16, "-r", 1, "-t", 1),
    "tokenizer": ("-r", 1),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_prints_json_csv_and_tables(invoke: Invoke, stories: Path, verb: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Once upon a time\nthere was a bench.\n")
    arguments = ["bench", verb, "-m", stories, *VERBS[verb]]
    arguments += ["-f", tmp_path / "text.txt"] if verb == "tokenizer" else []
    found = invoke(*arguments, "--json")
    assert found.exit_code == 0, found.stderr
    record = json.loads(found.stdout)
    assert record["kind"] == verb and record["file"]["name"] == stories.name and record["machine"]["cpu"]
    table = invoke(*arguments, "--csv")
    rows = list(csv.DictReader(io.StringIO(table.stdout)))
    assert table.exit_code == 0 and {row["record"] for row in rows} == {verb}
    if verb == "memory":
        assert {row["phase"] for row in rows} >= {"load", "generate"} and all(int(row["resident"]) > 0 for row in rows)
    else:
        assert [row["name"] for row in rows] == [result["name"] for result in record["results"]]
    table = invoke(*arguments, "--md")
    assert table.exit_code == 0 and table.stdout.startswith("| ") and f"- {record['machine']['cpu']}" in table.stdout
    assert invoke("bench", verb, "-h").output.count("Examples:") == 1


def test_the_gate_of_latency(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    arguments = ("bench", "latency", "-m", stories, "-p", 8, "-n", 3, "-r", 1, "-t", 1)
    record = json.loads(invoke(*arguments, "--json").stdout)
    record["results"][0]["rate"] *= 1e6
    (tmp_path / "before.json").write_text(json.dumps(record))
    found = invoke(*arguments, "--baseline", tmp_path / "before.json")
    assert found.exit_code == 1 and "1 at a time fell by" in found.stderr


def test_energy_says_what_is_missing(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.bench.energy.find_meters", lambda gpu: ([], ["RAPL: no zone", "NVML: no driver"]))
    found = invoke("bench", "energy", "-m", stories)
    assert found.exit_code == 1 and not found.stdout
    assert found.stderr == "error: no energy counter can be read: RAPL: no zone; NVML: no driver\n"


class Clock:
    """A counter that always goes on."""

    name = "package-0"

    def __init__(self) -> None:
        self._asked = 0

    def joules(self) -> float:
        self._asked += 1
        return float(self._asked)


def test_energy_of_a_gpu_by_its_variable(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("llamina.bench.energy.find_meters", lambda gpu: asked.append(gpu) or ([], ["NVML: no driver"]))
    for backend in ("cuda", "cpu"):
        monkeypatch.setenv("LLAMINA_BACKEND", backend)
        assert invoke("bench", "energy", "-m", stories).exit_code == 1
    assert asked == [True, False]


def test_energy(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.bench.energy.find_meters", lambda gpu: ([Clock()], ["NVML: no driver"]))
    arguments = ("bench", "energy", "-m", stories, "-p", 8, "-n", 3, "-t", 1, "--seconds", 0.1)
    found = invoke(*arguments, "--csv")
    assert found.exit_code == 0, found.stderr
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert [(row["name"], row["joules.package-0"]) for row in rows] == [("pp8", "1.0"), ("tg3", "1.0")]
    found = invoke(*arguments, "--md")
    assert "tokens/J beyond idle" in found.stdout and "- NVML: no driver" in found.stdout


def test_a_shape_in_the_place_of_a_model(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", Shape("llama", 1, 64, 96, 2, 1, 32, 300, 1e4))
    written = tmp_path / "shapes" / "tiny-Q8_0-v2.gguf"
    monkeypatch.setattr("llamina.bench.synthetic.cache_dir", lambda: tmp_path)
    found = invoke("bench", "--shape", "tiny:Q8_0", "-p", 8, "-n", 2, "-r", 1, "-t", 1, "--csv")
    assert found.exit_code == 0, found.stderr
    assert written.exists() and "writing tiny-Q8_0-v2.gguf" in found.stderr
    assert {row["file"] for row in csv.DictReader(io.StringIO(found.stdout))} == {written.name}
    found = invoke("bench", "latency", "--shape", "tiny:Q8_0", "-p", 8, "-n", 2, "-r", 1, "-t", 1)
    assert found.exit_code == 0 and "writing" not in found.stderr


def test_an_instruction_set(invoke: Invoke, stories: Path) -> None:
    best = features.steps()[-1]
    found = invoke("bench", "-m", stories, "-p", 8, "-n", 0, "-r", 1, "-t", 1, "--isa", best)
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines()[0].split() == ["test", best, "unit"]
    found = invoke("bench", "kernels", "--format", "Q8_0", "-t", 1, "--size", 0.01, "-p", 4, "-r", 1, "--isa", best)
    assert found.exit_code == 0 and "Q8_0 n4 t1" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json", "--csv"], "--json and --csv are given: give one of them"),
        (["--csv", "--md"], "--csv and --md are given"),
        (["--shape", "smollm2"], "--shape and a model are given"),
        (["--isa", "sse"], "isa is 'sse': must be one of portable"),
        (["--isa", "avx2,"], "not a list of names"),
        (["--isa", "avx2", "--plot", "x.png"], "--isa has no effect with --against and --plot"),
        (["memory", "-c", "1,2"], "one number is expected"),
        (["energy", "--gpu", "-t", "1"], "-t has no effect on a GPU (--gpu, or LLAMINA_BACKEND=cuda)"),
        (["speculative", "--chance", "1.5"], "1.5 is no chance"),
        (["speculative", "-n", "1"], "give 2 or more"),
        (["speculative", "--draft", "x", "--chance", "0.5"], "--chance has no effect with --draft"),
    ],
)
def test_mistakes(invoke: Invoke, stories: Path, arguments: list[str], message: str) -> None:
    verb = arguments[:1] if not arguments[0].startswith("-") else []
    found = invoke("bench", *verb, "-m", stories, *arguments[len(verb) :])
    assert found.exit_code == 2 and message in found.stderr and not found.stdout


def test_an_unknown_shape(invoke: Invoke) -> None:
    found = invoke("bench", "--shape", "llama-9")
    assert found.exit_code == 2 and "shape is 'llama-9': must be one of smollm2-135m" in found.stderr
