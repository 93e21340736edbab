"""`/metrics` as Prometheus reads it: what was counted, by model and by route."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from live_server import Live, serving, wait_for
from prometheus_client.parser import text_string_to_metric_families

from llamina import load

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
Samples = dict[str, float]


@pytest.fixture(scope="module")
def counted(golden: Callable[[str], Path]) -> Iterator[Live]:
    """A server that nobody else asks."""
    path = golden("stories260K.gguf")
    with serving({name: load(path, threads=1, max_sequences=8) for name in ("stories", "other")}) as server:
        yield server


def read(counted: Live) -> Samples:
    """Every sample by its name and labels."""
    answer = httpx.get(f"{counted.url}/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families), "each metric is told once"
    assert all(family.name.startswith("llamina_") and family.type != "unknown" for family in families)
    return {_name(s.name, s.labels): s.value for family in families for s in family.samples}


def _name(name: str, labels: dict[str, str]) -> str:
    inside = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return name.removeprefix("llamina_") + (f"{{{inside}}}" if inside else "")


def test_what_a_request_adds(counted: Live) -> None:
    before = read(counted)
    body = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 7, "temperature": 0, "cache_prompt": False}
    used = counted.post("/v1/completions", body).json()["usage"]
    assert counted.post("/v1/completions", {"prompt": 3}).status_code == 400
    after = read(counted)

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert more("tokens_generated_total{model=stories}") == used["completion_tokens"] == 7
    assert more("prompt_tokens_total{model=stories}") == used["prompt_tokens"] == 5
    assert more("tokens_generated_total{model=other}") == 0
    assert more("sequences_total{finish_reason=length,model=stories}") == 1
    assert more("requests_total{endpoint=/v1/completions,status=200}") == 1
    assert more("requests_total{endpoint=/v1/completions,status=400}") == 1
    assert more("http_request_seconds_count{endpoint=/v1/completions}") == 2
    assert more("time_to_first_token_seconds_count{model=stories}") == 1
    assert more("inter_token_seconds_count{model=stories}") == 6
    assert more("batch_sequences_count{model=stories}") == more("steps_total{model=stories}") > 0
    assert after["active_requests"] == 1, "the one that asks"
    assert after["queue_depth{model=stories}"] == 0 and after["pages{model=stories}"] > 0
    assert after["model_loaded{model=other}"] == 1
    for name in ("cached_tokens_total", "preemptions_total", "drafted_tokens_total", "accepted_tokens_total"):
        assert f"{name}{{model=stories}}" in after


def test_cached_tokens_are_counted(counted: Live) -> None:
    body = {"model": "stories", "prompt": "Lily went to the park. " * 10, "max_tokens": 1}
    counted.post("/v1/completions", body)
    before = read(counted)["cached_tokens_total{model=stories}"]
    cached = counted.post("/v1/completions", body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert read(counted)["cached_tokens_total{model=stories}"] - before == cached > 16


def test_paths_are_told_by_their_template(counted: Live) -> None:
    """A client that asks for a thousand paths does not make a thousand series."""
    with httpx.Client(base_url=counted.url) as client:
        for n in range(20):
            assert client.get(f"/nothing/{n}").status_code == 404
            assert client.get(f"/v1/models/nobody-{n}").status_code == 404
            assert client.post(f"/slots/{n}?action=none").status_code == 400
        client.put("/v1/models")
    found = read(counted)
    endpoints = {name.split("endpoint=")[1].split(",")[0] for name in found if name.startswith("requests_total")}
    assert {"unknown", "/v1/models/{id:path}", "/slots/{id:int}"} <= endpoints
    assert not any("nobody" in name or "nothing" in name for name in found)
    assert found["requests_total{endpoint=unknown,status=404}"] >= 20
    assert found["requests_total{endpoint=/v1/models,status=405}"] >= 1


def test_requests_under_way(counted: Live) -> None:
    """A stream is active until it ends, and what waits for it is seen."""
    body = {"model": "stories", "prompt": "Once", "stream": True, "max_tokens": 100_000, "ignore_eos": True}
    body |= {"context_shift": True, "n": 12}
    with httpx.stream("POST", f"{counted.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        found = read(counted)
        assert found["active_requests"] == 2 and found["sequences_running{model=stories}"] == 8
        assert found["queue_depth{model=stories}"] == 4
    assert wait_for(lambda: read(counted)["active_requests"] == 1)
    assert wait_for(lambda: counted.idle("stories"))


def test_the_documentation_has_them_all(counted: Live) -> None:
    told = {
        name.removeprefix("llamina_") for name in re.findall(r"# TYPE (\S+)", httpx.get(f"{counted.url}/metrics").text)
    }
    cells = [line.split("|")[1] for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == told
