"""Counters, histograms and gauges, and their text as another program reads it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import llamina
from llamina import Engine, Request, Sampling


@pytest.fixture
def counted(stories: Path) -> Iterator[Engine]:
    with llamina.load(stories, threads=1, context=256, max_sequences=2, cache_tokens=256, step_tokens=64) as found:
        yield found


def samples(counted: Engine, **labels: str) -> dict[str, float]:
    """Every line by its name and, if it has one, its own label."""
    found = {}
    for family in text_string_to_metric_families(counted.metrics.text(labels)):
        for sample in family.samples:
            own = [value for key, value in sample.labels.items() if key not in labels]
            assert {key: sample.labels[key] for key in labels} == labels
            found["/".join([sample.name.removeprefix("llamina_"), *own])] = sample.value
    return found


def test_nothing_yet(counted: Engine) -> None:
    found = samples(counted)
    assert found.pop("pages") == 16
    assert not any(found.values()) and len(found) > 60


def test_what_is_counted(counted: Engine) -> None:
    prompt = [1, *range(10, 109)]
    for _ in range(2):
        counted.generate(prompt, temperature=0, max_tokens=10, ignore_eos=True)
    stream = counted.stream([1, 2, 3], temperature=0, max_tokens=10)
    next(stream)
    found = samples(counted, model='a \\ "b"\n')
    assert found["prompt_tokens_total"] == 100 + 4 + 2 and found["cached_tokens_total"] == 96 + 1, "BOS"
    assert found["tokens_generated_total"] == 21 and found["sequences_total/length"] == 2
    steps = 2 + 9 + 1 + 9 + 1 + counted.runner.program.ahead  # a device has begun the next one
    assert found["steps_total"] == steps
    assert found["batch_tokens_bucket/64"] == steps and found["batch_tokens_bucket/32"] == steps - 2
    assert found["batch_tokens_bucket/+Inf"] == found["batch_tokens_count"] == steps
    assert found["time_to_first_token_seconds_count"] == 3 and found["inter_token_seconds_count"] == 18
    assert found["queue_seconds_count"] == 3 and found["request_seconds_count"] == 2
    assert found["time_to_first_token_seconds_sum"] >= found["queue_seconds_sum"] > 0
    assert found["sequences_running"] == 1 and found["queue_depth"] == 0
    assert found["pages_used"] == 1 and found["pages_kept"] == 6
    stream.close()
    assert samples(counted)["sequences_total/cancelled"] == 1


def test_what_was_guessed_ahead(counted: Engine) -> None:
    done = counted.generate([1, *[5, 6, 7, 8] * 20], temperature=0, max_tokens=40, ignore_eos=True, speculate=3)
    found = samples(counted)
    assert found["drafted_tokens_total"] == done.usage.drafted_tokens > 0
    assert found["accepted_tokens_total"] == done.usage.accepted_tokens


def test_preemptions(counted: Engine) -> None:
    """Pages for one of the two long ones."""
    greedy = Sampling(temperature=0)
    sequences = [counted.submit(Request([1, *[n] * 110], greedy, max_tokens=40, ignore_eos=True)) for n in (5, 6)]
    while counted.core.running or counted.core.waiting:
        counted.step()
    assert all(s.finish_reason == "length" for s in sequences)
    assert counted.metrics.preemptions > 0 and samples(counted)["preemptions_total"] == counted.metrics.preemptions
