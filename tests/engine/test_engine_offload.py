"""Weights that are read from the file as their turn comes: the same bits within a budget of resident bytes."""

import sys
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.backends.cpu.program import CpuProgram
from llamina.engine.options import LoadOptions
from llamina.errors import CapacityError, RequestError
from llamina.gguf import GGUF, huge_pages
from skips import needs

PROMPT = [1, 25, 310, 44, 9]
BUDGET = 75_000_000
pytestmark = [
    pytest.mark.cpu_only,
    needs("hardware", sys.platform.startswith("linux"), "Linux, where pages are given back"),
]


def mapped() -> int:
    """Resident bytes of files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["RssFile"].split()[0])


@pytest.mark.parametrize("policy", ["budget", "pinned"])
def test_the_same_bits_within_the_budget(policy: str, smollm2: Path) -> None:
    with llamina.load(smollm2, threads=2) as engine:
        want = engine.logits(PROMPT)
    with llamina.load(smollm2, threads=2, offload=policy, memory_budget=BUDGET) as engine:
        program = engine.runner.program
        assert isinstance(program, CpuProgram) and program.pager is not None
        assert engine.runner.weight_bytes > BUDGET
        start, most = mapped(), 0
        got = engine.logits(PROMPT)
        for index in range(len(program.pager.segments)):  # stops between segments of another walk
            program.pager.before(index)
            most = max(most, mapped() - start)
            assert program.pager.resident <= BUDGET
            program.pager.after(index)
        assert np.array_equal(got, want)
        assert most < BUDGET + 4_000_000


def test_weights_are_read_ahead_if_all_may_stay(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[GGUF] = []
    monkeypatch.setattr(GGUF, "read_ahead", lambda file: asked.append(file))
    llamina.load(smollm2, threads=1).close()
    assert len(asked) == 1
    llamina.load(smollm2, threads=1, offload="budget", memory_budget=BUDGET).close()
    monkeypatch.setattr("llamina.backends.host.available_bytes", lambda: 1 << 20)
    llamina.load(smollm2, threads=1, cache_tokens=512).close()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({}, True),
        ({"huge_pages": False}, False),
        ({"offload": "budget", "memory_budget": BUDGET}, False),
        ({"backend": "reference"}, False),
    ],
    ids=str,
)
def test_weights_in_huge_pages(
    options: LoadOptions, moved: bool, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are moved once where the CPU has all of them in memory, and the bits stay."""
    asked: list[int] = []
    move = GGUF.use_huge_pages
    monkeypatch.setattr(GGUF, "use_huge_pages", lambda *given: asked.append(move(*given)))
    with llamina.load(smollm2, **({"backend": "cpu", "threads": 1} | options)) as engine:  # type: ignore[arg-type]
        got = engine.logits(PROMPT) if options.get("backend") is None else None
    assert len(asked) == moved and (not moved or not huge_pages.supported() or asked[0] > 90_000_000)
    if got is not None:
        with llamina.load(smollm2, threads=1, huge_pages=False) as engine:
            assert np.array_equal(engine.logits(PROMPT), got)


def test_weights_stay_mapped_if_memory_is_short(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(GGUF, "use_huge_pages", lambda *given: asked.append(1))
    monkeypatch.setattr("llamina.backends.host.available_bytes", lambda: 150 << 20)
    llamina.load(smollm2, threads=1, cache_tokens=512).close()
    assert not asked


def test_pinned_weights_stay(smollm2: Path) -> None:
    with llamina.load(smollm2, threads=1, offload="pinned", memory_budget=BUDGET) as engine:
        engine.logits(PROMPT)
        program = engine.runner.program
        assert isinstance(program, CpuProgram) and program.pager is not None
        assert 0 < program.pager.resident <= BUDGET


@pytest.mark.parametrize(
    ("pin", "names"),
    [
        (["output"], ["token_embd."]),  # which is the output matrix too
        (["embeddings", -1], ["token_embd.", "blk.29."]),
        ([7, 8], ["blk.7.", "blk.8."]),
    ],
    ids=str,
)
def test_what_is_pinned_is_kept(pin: list[int | str], names: list[str], smollm2: Path) -> None:
    with llamina.load(smollm2, threads=1) as engine:
        want = engine.logits(PROMPT)
    with llamina.load(smollm2, threads=1, offload="pinned", memory_budget=BUDGET, pin=pin) as engine:  # type: ignore[arg-type]
        program = engine.runner.program
        assert isinstance(program, CpuProgram) and program.pager is not None
        pager = program.pager
        weights = {int(w.data.ctypes.data): w.name for step in engine.runner.plan.steps for w in step.weights}
        assert np.array_equal(engine.logits(PROMPT), want)
        for index, segment in enumerate(pager.segments):
            if any(weights[at].startswith(tuple(names)) for at, _ in segment.weights):
                assert index in pager.pinned and index in pager._resident
        assert pager.resident <= BUDGET


@pytest.mark.parametrize("prefetch", [0, 3])
def test_how_much_is_read_ahead(prefetch: int, smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with llamina.load(smollm2, threads=1, offload="budget", memory_budget=150_000_000, prefetch=prefetch) as engine:
        program = engine.runner.program
        assert isinstance(program, CpuProgram) and program.pager is not None
        pager = program.pager
        pager.before(2)
        assert set(range(2, 3 + prefetch)) <= set(pager._resident) and 3 + prefetch not in pager._resident
        assert np.isfinite(engine.logits(PROMPT)).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"offload": "pinned", "memory_budget": BUDGET, "pin": [30]}, RequestError, "the model has layers 0 to 29"),
        ({"offload": "pinned", "memory_budget": BUDGET, "pin": "output"}, RequestError, "must be a list of layers"),
        ({"offload": "pinned", "memory_budget": BUDGET, "pin": ["head"]}, RequestError, "must be a list of layers"),
        ({"offload": "budget", "memory_budget": BUDGET, "pin": [0]}, RequestError, "use offload='pinned'"),
        ({"offload": "pinned", "memory_budget": BUDGET, "pin": range(30)}, CapacityError, "pin less"),
        ({"prefetch": 2}, RequestError, "without offload"),
        ({"offload": "budget", "memory_budget": BUDGET, "prefetch": -1}, RequestError, "at least 0"),
        ({"offload": "budget", "memory_budget": 60_000_000, "prefetch": 9}, CapacityError, "the next 9, which are"),
        ({"offload": "budget", "memory_budget": 1000}, CapacityError, "1000 bytes is too small"),
        ({"offload": "budget"}, RequestError, "give both or neither"),
        ({"memory_budget": 1000}, RequestError, "give both or neither"),
        ({"offload": "disk", "memory_budget": 1000}, RequestError, "none, budget or pinned"),
        ({"offload": "budget", "memory_budget": 10**9, "backend": "reference"}, RequestError, "needs backend='cpu'"),
    ],
    ids=str,
)
def test_options_that_make_no_sense(
    options: dict[str, object], error: type[Exception], message: str, smollm2: Path
) -> None:
    with pytest.raises(error, match=message):
        llamina.load(smollm2, **options)  # type: ignore[arg-type]
