"""How much the cache gets, and who is said to have how much."""

from collections.abc import Callable
from pathlib import Path

import pytest

import llamina
from llamina.backends import host
from llamina.errors import CapacityError
from llamina.gguf import GGUF


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A machine with so much memory left."""

    def leave(nbytes: int) -> None:
        monkeypatch.setattr(host, "available_bytes", lambda: nbytes)

    return leave


PAGE_BYTES = 5 * 2 * 4 * 16 * 8 * 2  # layers, keys and values, heads, tokens, dim, halves


def test_as_many_contexts_as_sequences(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=64, max_sequences=3) as engine:
        assert engine.core.pages.total == 3 * 4
        assert engine.memory().cache == 12 * PAGE_BYTES


@pytest.mark.parametrize(("spare", "pages"), [(50, 25), (1000, 16 * 8), (10, 8), (0, 8)])
@pytest.mark.cpu_only
def test_a_share_of_what_is_free(stories: Path, free: Callable[[int], None], spare: int, pages: int) -> None:
    """Half of what the weights leave; one context in any case, and no more than all sequences can use."""
    weights = sum(t.nbytes for t in llamina.gguf.open_model(stories).tensors.values())
    free(weights + spare * PAGE_BYTES + 1)
    with llamina.load(stories, threads=1, context=128) as engine:
        assert engine.core.pages.total == pages
        assert engine.generate("Once upon a time", max_tokens=5).text
    with llamina.load(stories, threads=1, context=128, cache_tokens=300) as engine:
        assert engine.core.pages.total == 19, "who says how much gets as much"


@pytest.mark.cpu_only
def test_too_little_for_one_context(stories: Path, free: Callable[[int], None]) -> None:
    free(7 * PAGE_BYTES)
    with pytest.raises(CapacityError, match=r"128 tokens takes \d+ bytes .* smaller context"):
        llamina.load(stories, threads=1, context=128)
    with llamina.load(stories, threads=1, context=112) as engine:
        assert engine.core.pages.total == 7


@pytest.mark.cpu_only
def test_quantized_caches_hold_more(smollm2: Path, free: Callable[[int], None]) -> None:
    weights = sum(t.nbytes for t in llamina.gguf.open_model(smollm2).tensors.values())
    free(
        weights + 80 * 30 * 2 * 3 * 16 * 64 * 2
    )  # pages of so many layers, keys and values, heads, tokens, dim, halves
    totals = []
    for kv_type in ("f32", "f16", "q8_0"):
        with llamina.load(smollm2, threads=1, context=96, kv_type=kv_type) as engine:
            totals.append(engine.core.pages.total)
    assert totals == [20, 40, 75]


@pytest.mark.cpu_only
def test_checkpoints_of_recurrent_states(speaking: Callable[[str], GGUF], free: Callable[[int], None]) -> None:
    model = speaking("mamba2-dense")
    with llamina.load(model, threads=1, context=64, max_sequences=2) as engine:
        slot = engine.runner.program.states.size("slot")
        assert slot > 0 and engine.memory().states == slot * (2 + 8)
        weights = engine.memory().weights
    free(weights + 8 * 3 * slot + 8)
    with llamina.load(model, threads=1, context=64, max_sequences=2) as engine:
        assert engine.memory().states == slot * (2 + 3)
        first, second = (engine.generate([1] * 60, temperature=0, max_tokens=3) for _ in range(2))
        assert first.tokens == second.tokens and second.usage.cached_tokens == 48
    free(slot)
    with pytest.raises(CapacityError, match="max_sequences"):
        llamina.load(model, threads=1, context=64, max_sequences=2)


def test_who_has_how_much(stories: Path) -> None:
    with llamina.load(stories, threads=1, context=128) as engine:
        fresh = engine.memory()
        assert fresh.cache_used == fresh.cache_kept == 0 and fresh.states == 0
        assert 1_000_000 < fresh.weights <= stories.stat().st_size and fresh.workspace > 0
        assert fresh.resident > 10_000_000 and fresh.available > 0
        stream = engine.stream([1] * 40, max_tokens=20, ignore_eos=True)
        next(stream)
        assert engine.memory().cache_used == 3 * PAGE_BYTES
        stream.result()
        after = engine.memory()
        assert after.cache_used == 0 and after.cache_kept == 3 * PAGE_BYTES


def test_limits_of_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, used, statistics = (tmp_path / name for name in ("max", "current", "stat"))
    monkeypatch.setattr(host, "CGROUPS", [(limit, used, statistics)])
    whole = host.available_bytes()
    limit.write_text("max\n")
    used.write_text("5000000\n")
    statistics.write_text("anon 4000000\ninactive_file 1000000\n")
    assert abs(host.available_bytes() - whole) < whole / 2
    limit.write_text("9000000\n")
    assert host.available_bytes() == 5000000
    used.write_text("15000000\n")
    assert host.available_bytes() == 0
