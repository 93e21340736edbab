"""llama.cpp's own programs: llama-bench, llama-batched-bench and llama-server, run with their fastest flags."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from llamina.bench.llama_server import LlamaServer, start
from llamina.bench.task import Task
from llamina.errors import CapacityError, RequestError

LIBRARY_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
ROOM = 256  # tokens by which llama.cpp rounds contexts up
PROBES = 2  # runs with each of the flags, to find the fastest
ATTEMPTS = 3  # llama-batched-bench prints by a thread, and may end before its last line is out


@dataclass(frozen=True, slots=True)
class Flags:
    """What changes llama.cpp's speed on a CPU; none of these is fastest everywhere."""

    flash: bool = True  # flash attention
    repack: bool = True  # weights are rearranged when they are loaded
    tiled: bool = True  # its tiled matrix product, by an environment variable

    def __str__(self) -> str:
        return f"-fa {_switch(self.flash)} repack={int(self.repack)} GGML_CPU_TILED_MM={int(self.tiled)}"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a benchmark's output."""

    task: Task
    threads: int
    rate: float  # tokens per second of all sequences
    flags: Flags


def parse_bench(text: str, tiled: bool = True) -> list[Row]:
    """The rows of `llama-bench -o jsonl`. Raises CapacityError for anything else."""
    found = []
    for line in _lines(text, "llama-bench"):
        try:
            prompt, depth = line["n_prompt"], line.get("n_depth", 0)
            task = Task("prompt", prompt, 1, depth) if prompt else Task("generate", line["n_gen"], 1, depth)
            flash = line["flash_attn"] not in (0, False, "off")
            flags = Flags(flash, bool(line.get("repack", True)), tiled)
            found.append(Row(task, line["n_threads"], float(line["avg_ts"]), flags))
        except (KeyError, TypeError) as error:
            raise CapacityError(f"llama-bench printed a row that is not understood: {error!r}") from error
    return found


def parse_batched(text: str, flags: Flags) -> list[Row]:
    """The generation rates of `llama-batched-bench --output-format jsonl`. Raises CapacityError for anything else."""
    found = []
    for line in _lines(text, "llama-batched-bench"):
        try:
            task = Task("generate", line["tg"], line["pl"], line["pp"])
            found.append(Row(task, line["n_threads"], float(line["speed_tg"]), flags))
        except (KeyError, TypeError) as error:
            raise CapacityError(f"llama-batched-bench printed a row that is not understood: {error!r}") from error
    return found


def parse_version(text: str) -> str:
    """The version that a program prints with --version, or `unknown`."""
    found = re.search(r"^version: (.+)$", text, re.MULTILINE)
    return found[1] if found else "unknown"


def _lines(text: str, program: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise CapacityError(f"{program} printed {line[:80]!r}, which is no JSON: {error}") from error


class Native:
    """The programs in one folder. The last command is `command`, for the record."""

    def __init__(self, llama_bench: Path) -> None:
        """Raises RequestError if the program is not there."""
        if not llama_bench.is_file():
            raise RequestError(f"{llama_bench} is not a file: give the program llama-bench of llama.cpp", "llama_bench")
        self._folder, self._name = llama_bench.resolve().parent, llama_bench.name
        self.command = ""
        self.version = parse_version(self._run([self._name, "--version"], Flags(), check=False))
        self._repacks = "--repack" in self._run([self._name, "--help"], Flags(), check=False)  # old ones always do

    def environment(self, flags: Flags) -> dict[str, str]:
        """The user's, with the folder's libraries in front."""
        paths = {
            name: os.pathsep.join(filter(None, (str(self._folder), os.environ.get(name)))) for name in LIBRARY_PATHS
        }
        return {**os.environ, **paths, "GGML_CPU_TILED_MM": str(int(flags.tiled))}

    def has(self, program: str) -> bool:
        return (self._folder / program).is_file()

    def bench(
        self, model: Path, task: Task, threads: int, flags: Sequence[Flags], embedding: bool = False
    ) -> list[Row]:
        """One run of a prompt or a generation with each of the flags (which share `tiled`), each after a warm-up."""
        size = ["-p", str(task.tokens), "-n", "0"] if task.kind == "prompt" else ["-p", "0", "-n", str(task.tokens)]
        command = [self._name, "-m", str(model), *size, "-d", str(task.depth), "-t", str(threads), "-r", "1"]
        command += ["-ngl", "0", "-fa", _values(flag.flash for flag in flags)]
        command += ["--repack", _values(flag.repack for flag in flags)] * self._repacks + ["-embd", "1"] * embedding
        rows = parse_bench(self._run([*command, "-o", "jsonl"], flags[0]), flags[0].tiled)
        found = [row for row in rows if row.flags in flags]
        if len(found) < len(flags):
            raise CapacityError(f"llama-bench printed {len(found)} rows, not {len(flags)}: run {' '.join(command)}")
        return found

    def batched(self, model: Path, task: Task, threads: int, flags: Flags) -> Row:
        """One run of several sequences that generate at a time, behind prompts of the task's depth."""
        room = task.batch * -(-(task.reach + 1) // ROOM) * ROOM
        command = ["llama-batched-bench", "-m", str(model), "-c", str(room), "-npp", str(task.depth)]
        command += ["-ntg", str(task.tokens), "-npl", str(task.batch), "-t", str(threads), "-ngl", "0"]
        command += ["-fa", _switch(flags.flash), *([] if flags.repack else ["--no-repack"])]
        for _ in range(ATTEMPTS):
            rows = parse_batched(self._run([*command, "--output-format", "jsonl"], flags), flags)
            if [row.task for row in rows] == [task]:
                return rows[0]
        raise CapacityError(f"llama-batched-bench did not measure {task.name}: run {' '.join(command)}")

    def run(self, model: Path, task: Task, threads: int, flags: Flags) -> float:
        """Tokens per second of one run."""
        if task.batch > 1:
            return self.batched(model, task, threads, flags).rate
        return self.bench(model, task, threads, [flags])[0].rate

    def best(self, model: Path, task: Task, threads: int) -> Flags:
        """The flags with which the task was fastest in one of the runs, `PROBES` with each."""
        found: list[Row] = []
        for tiled in (True, False) * PROBES:
            repacks = (True, False) if self._repacks else (True,)
            flags = [Flags(flash, repack, tiled) for flash, repack in product((True, False), repacks)]
            if task.batch > 1:
                found += [self.batched(model, task, threads, each) for each in flags]
            else:
                found += self.bench(model, task, threads, flags)
        return max(found, key=lambda row: row.rate).flags

    def serve_embeddings(
        self, model: Path, threads: int, slots: int, ubatch: int, tokens: int, flags: Flags
    ) -> LlamaServer:
        """llama-server with a slot for each of `slots` texts of at most `tokens`, that has loaded the model."""
        options = {"--threads": threads, "--parallel": slots, "--ctx-size": slots * -(-tokens // ROOM) * ROOM}
        options |= {"--batch-size": ubatch, "--ubatch-size": ubatch, "--n-gpu-layers": 0}
        command = ["llama-server", "--model", str(model), "--embedding"]
        command += [str(part) for option in options.items() for part in option]
        command += ["--flash-attn", _switch(flags.flash), *([] if flags.repack else ["--no-repack"])]
        self._note(command, flags)
        return start([str(self._folder / command[0]), *command[1:]], 0, self.environment(flags))

    def _note(self, command: Sequence[str], flags: Flags) -> None:
        """Keep a command as a reader would type it."""
        setting = [] if flags.tiled else ["GGML_CPU_TILED_MM=0"]
        self.command = " ".join([*setting, *map(bare, command)])

    def _run(self, command: Sequence[str], flags: Flags, check: bool = True) -> str:
        """What the program prints. Raises CapacityError if it is not there or fails."""
        if not self.has(command[0]):
            raise CapacityError(f"{command[0]} is not beside {self._name} in {self._folder}: build it")
        self._note(command, flags)
        done = subprocess.run(
            [str(self._folder / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            env=self.environment(flags),
        )
        if check and done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["nothing"]
            raise CapacityError(f"{command[0]} ended with code {done.returncode} and said: {last[0]}")
        return done.stdout + ("" if check else done.stderr)


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _values(switches: Iterable[bool]) -> str:
    """Values for a sweep, each once."""
    return ",".join(str(int(on)) for on in dict.fromkeys(switches))


def bare(part: str) -> str:
    """A path without its folders: they differ from machine to machine."""
    return Path(part).name if os.sep in part else part
