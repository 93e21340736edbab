"""A real server that is killed at random moments of a batch and of uploads, and what must be there afterwards."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import sqlalchemy as sa

ENDPOINT = "/v1/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
PATIENCE = 120.0  # seconds


class Process:
    """`llamina serve` with a data folder, until it is killed."""

    def __init__(self, model: Path, data: Path) -> None:
        command = [sys.executable, "-m", "llamina", "serve", f"stories={model}", "--port", "0", "-t", "1"]
        environment = os.environ | {"LLAMINA_DATA": str(data)}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self._process.stderr is not None
        self.url = self._process.stderr.readline().split()[-1]
        assert self.url.startswith("http://"), "the server does not start"
        self._log = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._log.start()
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it as a power cut would. Its worker must notice, and end by itself."""
        try:
            workers = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            workers = []
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._log.join()
        self.client.close()
        _, alive = psutil.wait_procs(workers, 20)
        assert not alive, f"workers outlive their server: {alive}"

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()


class Uploads(threading.Thread):
    """Uploads files one after the other until the server is gone; `told` are those it has acknowledged."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self._url, self._random = url, random.Random(seed)
        self.told: dict[str, str] = {}  # id: SHA-256

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=PATIENCE) as client:
                while True:
                    content = self._random.randbytes(self._random.choice((0, 100, 100_000, 2_000_000)))
                    answer = client.post("/v1/files", files={"file": ("a", content)}, data={"purpose": "user_data"})
                    self.told[answer.json()["id"]] = hashlib.sha256(content).hexdigest()
        except httpx.TransportError:
            pass


class Scene:
    """One batch that outlives many servers. Every check is an assertion."""

    def __init__(self, model: Path, data: Path, lines: int, seed: int) -> None:
        self._model, self._data, self._random = model, data, random.Random(seed)
        self._lines = [f"line {i}" for i in range(lines)]
        self.files: dict[str, str] = {}
        self._fresh: dict[str, str] = {}  # of the last server
        self.batch = ""
        self.kept: dict[str, str] = {}  # answers by custom_id that were in the store when a server was killed
        self.kills: list[str] = []  # the state of the batch at each

    def create(self, process: Process) -> None:
        def line(id: str) -> dict[str, Any]:
            body = {"prompt": f"Once upon a time {id}", "max_tokens": 40, "ignore_eos": True}
            return {"custom_id": id, "method": "POST", "url": ENDPOINT, "body": body}

        content = "".join(json.dumps(line(id)) + "\n" for id in self._lines).encode()
        form = {"files": {"file": ("in", content)}, "data": {"purpose": "batch"}}
        file = process.client.post("/v1/files", **form).raise_for_status().json()  # type: ignore[arg-type]
        self.files[file["id"]] = hashlib.sha256(content).hexdigest()
        body = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h"}
        self.batch = process.client.post("/v1/batches", json=body).raise_for_status().json()["id"]

    def kill_once(self) -> bool:
        """Start a server, check what is there, kill it after a while; whether the batch has ended."""
        process = Process(self._model, self._data)
        uploads = Uploads(process.url, self._random.getrandbits(32))
        try:
            self.check(process, self._fresh)
            if not self.batch:
                self.create(process)
            uploads.start()
            told = self._watch(process, self._random.randint(0, max(len(self._lines) // 8, 1)))
        finally:
            process.kill()
            uploads.join()
        self._fresh = uploads.told
        self.files |= uploads.told
        self.kills.append(told["status"])
        self._look(told)
        return told["status"] in ENDED

    def kill_at_start(self) -> None:
        """Kill a server that has just begun to go on with the batch."""
        process = Process(self._model, self._data)
        time.sleep(self._random.uniform(0, 3))  # a moment like any other: nothing is waited for
        process.kill()
        self.kills.append("starting")
        self._look(None)

    def _watch(self, process: Process, lines: int) -> Any:
        """Wait until so many more lines are answered; what the batch was last said to be."""
        told = process.get(f"/v1/batches/{self.batch}")
        goal, end = told["request_counts"]["completed"] + lines, time.monotonic() + PATIENCE
        while told["status"] not in ENDED and told["request_counts"]["completed"] < goal:
            assert time.monotonic() < end, "the batch does not go on"
            time.sleep(self._random.uniform(0, 0.02))
            told = process.get(f"/v1/batches/{self.batch}")
        return told

    def _look(self, told: Any) -> None:
        """In the database, while no server runs: what was acknowledged is there, and answers are never replaced."""
        engine = sa.create_engine(f"sqlite:///{self._data / 'llamina.db'}")
        query = sa.text("select body from objects where kind = 'batch_line'")
        with closing(engine.connect()) as connection:
            bodies = [json.loads(body) for body in connection.execute(query).scalars()]
        engine.dispose()
        answers = {body["custom_id"]: body["id"] for body in bodies}
        assert len(answers) == len(bodies), "a line was answered twice"
        if told is not None and told["status"] == "in_progress" and answers:
            assert len(answers) >= told["request_counts"]["completed"]
        assert not answers or answers.items() >= self.kept.items(), "an answer is lost, or was made again"
        self.kept |= answers

    def check(self, process: Process, contents: dict[str, str]) -> None:
        """Every file that was acknowledged is there; these, and those that never were acknowledged, are whole."""
        found = {file["id"]: file["bytes"] for file in process.get("/v1/files")["data"]}
        assert found.keys() >= self.files.keys(), f"lost: {self.files.keys() - found.keys()}"
        for id in contents.keys() | (found.keys() - self.files.keys()):
            content = process.client.get(f"/v1/files/{id}/content").raise_for_status().content
            assert len(content) == found[id]
            assert id not in contents or hashlib.sha256(content).hexdigest() == contents[id]

    def finish(self) -> None:
        """Let a last server end the batch: each line is answered once, with the answers that were kept before."""
        process = Process(self._model, self._data)
        try:
            self.check(process, self.files)
            told = self._watch(process, len(self._lines) + 1)
            assert told["status"] == "completed" and told["error_file_id"] is None
            assert told["request_counts"] == {"total": len(self._lines), "completed": len(self._lines), "failed": 0}
            text = process.client.get(f"/v1/files/{told['output_file_id']}/content").text
            outputs = [f for f in process.get("/v1/files")["data"] if f["purpose"] == "batch_output"]
            assert len(outputs) == 1, "the output was written twice"
        finally:
            process.kill()
        answers = [json.loads(line) for line in text.splitlines()]
        assert [answer["custom_id"] for answer in answers] == self._lines
        ids = {answer["custom_id"]: answer["id"] for answer in answers}
        assert len(set(ids.values())) == len(ids) and ids.items() >= self.kept.items()
