"""Load on a server by its URL: what is sent, when, and what is made of the answers."""

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamina.bench import Asked, measure_url
from llamina.bench.url.arrivals import Concurrency, Rate
from llamina.bench.url.client import Client, Outcome
from llamina.bench.url.measure import summary
from llamina.bench.url.prompts import read_dataset, words, words_for
from llamina.cli import cli
from llamina.errors import CapacityError, RequestError
from skips import import_peer


class Answering(http.server.BaseHTTPRequestHandler):
    """A server that says three words to everything, in chunks that do not end where events do."""

    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]
    status = 200

    def do_GET(self) -> None:
        self._answer(200, json.dumps({"data": [{"id": "three"}]}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append(body | {"path": self.path, "key": self.headers.get("Authorization")})
        if self.status != 200:
            self._answer(self.status, b'{"error": "full"}')
            return
        said = [{"choices": [{"delta": {"content": word}}]} for word in ("", "One ", "two ", "three")]
        text = body.get("prompt") or body["messages"][0]["content"]
        used = {"prompt_tokens": 4 + 2 * len(text.split()), "completion_tokens": 3}
        data = "".join(f"data: {json.dumps(one)}\n\n" for one in [*said, {"choices": [], "usage": used}])
        data += "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(data), 50):
            part = data[start : start + 50].encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answering]]]:
    kind = type("Here", (Answering,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as found:
        found.daemon_threads = True
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_address[1]}/v1", kind
        found.shutdown()
        thread.join()


def test_a_record(server: tuple[str, type[Answering]]) -> None:
    url, kind = server
    ticks: list[tuple[str, int, int]] = []
    asked = Asked(url, [Concurrency(2), Rate(1000.0)], key="secret", prompt=44, tokens=3, total=5)
    record = measure_url(asked, "command", lambda *news: ticks.append(news))
    closed, open_loop = record["results"]
    assert (closed["name"], open_loop["name"]) == ("2 at a time", "1000 a second")
    assert closed["requests"] == 5 and closed["errors"] == 0 and closed["completion_tokens"] == 3
    assert closed["prompt_tokens"] == 44, "a prompt has as many words as make the tokens that are asked for"
    assert closed["rate"] == pytest.approx(15 / closed["seconds"])
    for name in ("first_token", "inter_token", "whole"):
        assert 0 <= closed[name]["p50"] <= closed[name]["p95"] <= closed[name]["p99"]
    assert closed["first_token"]["p50"] <= closed["whole"]["p50"]
    assert ticks[0] == ("2 at a time", 0, 5) and ticks[-1] == ("1000 a second", 5, 5)
    sent = kind.asked[2:]
    assert len(sent) == 10 and len({body["messages"][0]["content"] for body in sent}) == 10, "no prompt twice"
    first = sent[0]
    assert first["path"] == "/v1/chat/completions" and first["key"] == "Bearer secret" and first["model"] == "three"
    assert first["max_tokens"] == 3 and first["stream"] and first["ignore_eos"] and first["temperature"] == 0
    assert record["settings"]["key"] is True and "secret" not in json.dumps(record)


def test_errors(server: tuple[str, type[Answering]]) -> None:
    url, kind = server

    async def ask() -> Outcome:
        client = Client(url)
        outcome = await client.ask("/chat/completions", b"{}")
        client.close()
        return outcome.read()

    kind.status = 503
    outcome = asyncio.run(ask())
    assert outcome.error == '503: {"error": "full"}'
    good = Outcome(0.0, [1.0, 1.5], 2.0, 3, 2)
    found = summary(Concurrency(1), [outcome, good], 4.0)
    assert found["errors"] == 1 and found["messages"] == [outcome.error] and found["rate"] == 0.5
    assert found["first_token"]["p50"] == 1.0 and found["inter_token"]["p99"] == 0.5
    with pytest.raises(CapacityError, match="503"):
        measure_url(Asked(url, [Concurrency(1)]), "", lambda *_: None)
    for wrong, message in (("ftp://x", "give one such as"), ("http://127.0.0.1:9", "does not answer")):
        with pytest.raises(RequestError, match=message):
            measure_url(Asked(wrong, [Concurrency(1)]), "", lambda *_: None)


def test_arrivals() -> None:
    """A closed loop has as many at a time as asked; in an open one a request's clock starts when it is due."""
    running, most, dues = 0, 0, []

    async def send(number: int, due: float | None) -> Outcome:
        nonlocal running, most
        running += 1
        most = max(most, running)
        dues.append(due)
        await asyncio.sleep(0)
        running -= 1
        return Outcome(due or time.perf_counter())

    assert len(asyncio.run(Concurrency(3).run(10, send))) == 10 and most == 3 and dues == [None] * 10
    dues.clear()
    asyncio.run(Rate(5000.0).run(50, send))
    gaps = [after - before for before, after in pairwise(dues)]  # type: ignore[operator]
    assert len(gaps) == 49 and min(gaps) > 0 and sum(gaps) / 49 == pytest.approx(1 / 5000, rel=0.6)
    assert len(set(gaps)) == 49, "Poisson, not even"


def test_prompts(tmp_path: Path) -> None:
    async def count(text: str) -> int:
        return 10 + 3 * len(text.split())

    assert asyncio.run(words_for(100, count)) == 30
    assert words(5, 1) != words(5, 2) and words(5, 1) == words(5, 1)
    path = tmp_path / "prompts.jsonl"
    message = {"role": "user", "content": "two"}
    share = {"conversations": [{"from": "human", "value": "three"}]}
    path.write_text("\n".join(json.dumps(x) for x in ("one", {"messages": [message]}, share, {"prompt": "four"})))
    assert read_dataset(path) == ["one", [message], "three", "four"]
    path.write_text('"one"\n{"text": 1}\n')
    with pytest.raises(RequestError, match=r"prompts.jsonl:2 has no prompt"):
        read_dataset(path)


def test_a_plot(server: tuple[str, type[Answering]], tmp_path: Path) -> None:
    import_peer("matplotlib")
    path = tmp_path / "load.png"
    found = CliRunner().invoke(cli, ["bench", "serve", "--url", server[0], "--total", "4", "--plot", str(path)])
    assert found.exit_code == 0 and path.read_bytes().startswith(b"\x89PNG"), found.stderr


def test_command(server: tuple[str, type[Answering]], tmp_path: Path) -> None:
    """A table, and the gate against an earlier record."""
    url, _ = server
    path = tmp_path / "before.json"
    command = ["bench", "serve", "--url", url, "-c", "1,2", "--total", "4", "-n", "3"]
    found = CliRunner().invoke(cli, [*command, "--json"])
    assert found.exit_code == 0, found.stderr
    record = json.loads(found.stdout)
    for result in record["results"]:
        result["rate"] *= 1e6
    path.write_text(json.dumps(record))
    found = CliRunner().invoke(cli, [*command, "--md", "--baseline", str(path)])
    assert found.exit_code == 1 and "1 at a time fell by" in found.stderr
    assert found.stdout.startswith("| load ") and "three" in found.stdout
    found = CliRunner().invoke(cli, [*command, "-t", "1"])
    assert found.exit_code == 2 and "no effect with --url" in found.stderr
