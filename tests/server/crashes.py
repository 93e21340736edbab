"""A real server that is killed at random moments of a batch, of responses in the background and of uploads.

Whatever it has acknowledged must be there afterwards, and nothing may be done twice.
"""

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
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psutil
import sqlalchemy as sa

ENDPOINT = "/v1/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
PATIENCE = 120.0  # seconds
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


class Process:
    """`llamina serve` with a data folder, until it is killed."""

    def __init__(self, model: Path, data: Path) -> None:
        command = [sys.executable, "-m", "llamina", "serve", f"stories={model}", "--port", "0", "-t", "1"]
        command += ["--chat-template", TEMPLATE]
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


def story(input: str) -> dict[str, Any]:
    """A request whose answer is always the same: it ends by itself, as the grammar says."""
    return {"model": "stories", "input": input, "temperature": 0, "max_output_tokens": 400, "regex": "[a-z ]{250}"}


class Responses(threading.Thread):
    """Asks for responses in the background until the server is gone, half of them streamed, each in its conversation.

    `told` are those that the server has acknowledged: their inputs and conversations.
    """

    def __init__(self, url: str, seed: int) -> None:
        super().__init__()
        self._url, self._random = url, random.Random(seed)
        self.told: dict[str, tuple[str, str]] = {}

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=PATIENCE) as client:
                for i in count():
                    conversation = client.post("/v1/conversations", json={}).json()["id"]
                    input = f"Once upon a time {self._random.randint(0, 9)}"
                    body = story(input) | {"background": True, "conversation": conversation, "stream": i % 2 == 1}
                    self.told[self._ask(client, body)] = input, conversation
                    time.sleep(self._random.uniform(0, 0.5))
        except httpx.TransportError:
            pass

    def _ask(self, client: httpx.Client, body: dict[str, Any]) -> str:
        """The id of a response. A client that streams has it by the first event, and leaves."""
        with client.stream("POST", "/v1/responses", json=body) as answer:
            lines = [] if body["stream"] else [answer.read().decode()]
            line = next(line for line in answer.iter_lines() if line.startswith("data: ")) if not lines else lines[0]
            found = json.loads(line.removeprefix("data: "))
            assert answer.status_code == 200, found
        id: str = found["response"]["id"] if body["stream"] else found["id"]
        return id


class Scene:
    """One batch, and responses, that outlive many servers. Every check is an assertion."""

    def __init__(self, model: Path, data: Path, lines: int, seed: int) -> None:
        self._model, self._data, self._random = model, data, random.Random(seed)
        self._lines = [f"line {i}" for i in range(lines)]
        self.files: dict[str, str] = {}
        self._fresh: dict[str, str] = {}  # of the last server
        self.batch = ""
        self.kept: dict[str, str] = {}  # answers by custom_id that were in the store when a server was killed
        self.responses: dict[str, tuple[str, str]] = {}  # by id: their inputs and conversations
        self.ended: dict[str, Any] = {}  # those that were in the store as they are when a server was killed
        self.interrupted = 0  # responses that were under way at a kill
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
        clients = uploads, responses = (
            Uploads(process.url, self._random.getrandbits(32)),
            Responses(process.url, self._random.getrandbits(32)),
        )
        try:
            self.check(process, self._fresh)
            if not self.batch:
                self.create(process)
            for client in clients:
                client.start()
            told = self._watch(process, self._random.randint(0, max(len(self._lines) // 8, 1)))
        finally:
            process.kill()
            for client in clients:
                client.join()
        self._fresh = uploads.told
        self.files |= uploads.told
        self.responses |= responses.told
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
        query = "select body from objects where kind = '{}'"
        with closing(engine.connect()) as connection:
            bodies, kept = (
                [json.loads(body) for body in connection.execute(sa.text(query.format(kind))).scalars()]
                for kind in ("batch_line", "response")
            )
        engine.dispose()
        responses = {one["response"]["id"]: one["response"] for one in kept}
        assert responses.keys() >= self.responses.keys(), f"lost: {self.responses.keys() - responses.keys()}"
        assert all(responses[id] == one for id, one in self.ended.items()), "a response was made again"
        self.ended |= {id: one for id, one in responses.items() if one["status"] in ENDED}
        self.interrupted += len(responses) - len(self.ended)
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
            self._finish_responses(process)
            outputs = [f for f in process.get("/v1/files")["data"] if f["purpose"] == "batch_output"]
            assert len(outputs) == 1, "the output was written twice"
        finally:
            process.kill()
        answers = [json.loads(line) for line in text.splitlines()]
        assert [answer["custom_id"] for answer in answers] == self._lines
        ids = {answer["custom_id"]: answer["id"] for answer in answers}
        assert len(set(ids.values())) == len(ids) and ids.items() >= self.kept.items()

    def _finish_responses(self, process: Process) -> None:
        """Each is completed once, says what it would have said without kills, and is once in its conversation."""
        end, listed = time.monotonic() + PATIENCE, self._listed(process)
        while any(one["status"] not in ENDED for one in listed):
            assert time.monotonic() < end, "the responses do not come to an end"
            time.sleep(0.1)
            listed = self._listed(process)
        found = {one["id"]: one for one in listed}
        assert found.keys() >= self.responses.keys() and len(found) == len(listed), "one is lost, or there twice"
        assert len(found) <= len(self.responses) + len(self.kills), "at most one of each server was not acknowledged"
        expected = {input: self._text(process, input) for input in {input for input, _ in self.responses.values()}}
        for id, (input, conversation) in self.responses.items():
            response = process.get(f"/v1/responses/{id}")
            assert response == found[id] == self.ended.get(id, response) and response["status"] == "completed"
            [message] = response["output"]
            assert message["content"][0]["text"] == expected[input]
            items = process.get(f"/v1/conversations/{conversation}/items?order=asc")["data"]
            assert [item["role"] for item in items] == ["user", "assistant"] and items[1] == message
            self._check_events(process, id, expected[input])

    def _listed(self, process: Process) -> list[Any]:
        listed: list[Any] = []
        page: Any = {"has_more": True}
        while page["has_more"]:
            after = f"&after={listed[-1]['id']}" if listed else ""
            page = process.get(f"/v1/responses?limit=100{after}")
            listed += page["data"]
        return listed

    def _text(self, process: Process, input: str) -> str:
        body = story(input) | {"store": False}
        response = process.client.post("/v1/responses", json=body).raise_for_status().json()
        text: str = response["output"][0]["content"][0]["text"]
        return text

    def _check_events(self, process: Process, id: str, text: str) -> None:
        """Of one that was streamed, which can be read again: they are numbered and tell the text once."""
        answer = process.client.get(f"/v1/responses/{id}?stream=true")
        if answer.status_code == 400:
            return
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        events = [json.loads(line) for line in lines]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == text
        assert events[-1]["type"] == "response.completed"
