"""`benchmarks/serving.py`: what it promises; measuring is done by hand."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serving.py"


def test_verdict() -> None:
    """A check that fails is seen in its line and in the whole."""
    spec = importlib.util.spec_from_file_location("serving", SCRIPT)
    assert spec is not None and spec.loader is not None
    serving = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serving)
    good = {
        "chat": {"of the engine": 0.95},
        "tiny": {"of the engine": 0.6, "times llama-server": 2.0},
        "first": {"of llama-server's": 1.0},
        "idle": {"MB": 49.0},
    }
    assert good.keys() == serving.PROMISES.keys()
    table, holds = serving.verdict(good)
    assert holds and [line.split()[-1] for line in table.splitlines()] == ["holds"] * 5
    for check, name, value in (
        ("chat", "of the engine", 0.949),
        ("tiny", "of the engine", 0.4),
        ("tiny", "times llama-server", 1.9),
        ("first", "of llama-server's", 1.01),
        ("idle", "MB", 51.0),
    ):
        table, holds = serving.verdict(good | {check: good[check] | {name: value}})
        assert not holds and [line.split()[0] for line in table.splitlines() if line.endswith("FAILS")] == [check]
