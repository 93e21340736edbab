"""Where an engine's threads run."""

import os
import threading
from pathlib import Path

import pytest

import llamina
from llamina.backends.cpu.runtime import cores
from llamina.errors import RequestError
from skips import needs

linux = needs("hardware", hasattr(os, "sched_getaffinity"), "a system with thread affinity")


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("llamina-")}


def allowed(stories: Path) -> list[set[int]]:
    """What the threads of a fresh engine may run on, after it has computed something."""
    before = workers()
    with llamina.load(stories, threads=3) as engine:
        engine.generate("Once", max_tokens=2)
        fresh = sorted(workers() - before, key=lambda thread: thread.name)
        return [os.sched_getaffinity(thread.native_id or 0) for thread in fresh]


@linux
@pytest.mark.cpu_only
def test_threads_may_run_anywhere(stories: Path) -> None:
    assert allowed(stories) == [os.sched_getaffinity(0)] * 2


@linux
@pytest.mark.cpu_only
def test_threads_stay_on_cores_if_asked_to(stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMINA_PIN", "1")
    own, places = os.sched_getaffinity(0), cores.places()
    assert set(places) == own
    assert allowed(stories) == [{places[thread % len(places)]} for thread in (1, 2)]
    assert os.sched_getaffinity(0) == own  # the caller's thread is the caller's


@linux
def test_siblings_come_after_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for processor, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (tmp_path / f"cpu{processor}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{processor}" / "topology" / "thread_siblings_list").write_text(siblings)
    monkeypatch.setattr(cores, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 3, 4})
    assert cores.places() == [0, 3, 4, 2]  # of the last nothing is known


@pytest.mark.cpu_only
def test_what_is_not_understood_is_an_error(stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMINA_PIN", "yes")
    with pytest.raises(RequestError, match="LLAMINA_PIN is 'yes': it must be 0 or 1"):
        llamina.load(stories, threads=1)
