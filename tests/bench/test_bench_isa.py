"""Instruction sets side by side."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llamina.backends.cpu import features
from llamina.bench import Options, Task
from llamina.bench.child import instruction_set
from llamina.bench.isa import check_isas, measure_isas, measure_kernel_isas, with_isa_ratios
from llamina.bench.kernels import Sizes
from llamina.errors import RequestError


def quiet(*what: object) -> None:
    """Nobody watches."""


def test_steps_are_a_ladder() -> None:
    found = features.steps()
    assert tuple(found) == features.LADDER[: len(found)] and found
    if "LLAMINA_ISA" not in os.environ:
        has = [True, features.HAS_AVX2 or features.HAS_SDOT, features.HAS_AVX512, features.HAS_AMX]
        assert len(found) == sum(has)


def test_a_process_has_the_instruction_set_that_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMINA_ISA", "amx")
    look = [sys.executable, "-c", "from llamina.backends.cpu import features; print(any(features.used()))"]
    with instruction_set("portable"):
        told = subprocess.run(look, capture_output=True, text=True, check=True).stdout
    assert told == "False\n" and os.environ["LLAMINA_ISA"] == "amx"
    monkeypatch.delenv("LLAMINA_ISA")
    with instruction_set("avx2"), instruction_set(None):
        assert os.environ["LLAMINA_ISA"] == "avx2"
    assert "LLAMINA_ISA" not in os.environ


def test_what_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.bench.isa.usable_isas", lambda: ["portable", "avx2"])
    with pytest.raises(RequestError, match="isa is 'sse': must be one of portable, avx2, avx512, amx"):
        check_isas(["sse"])
    with pytest.raises(RequestError, match="isa is 'avx512', which this CPU lacks: it has portable, avx2"):
        check_isas(["avx2", "avx512"])
    with pytest.raises(RequestError, match="give each once"):
        check_isas(["avx2", "avx2"])


def test_a_model_in_a_process_of_its_own(stories: Path) -> None:
    best = features.steps()[-1]
    record = measure_isas(stories, [best], Options([Task("prompt", 8)], 1, 2), "test", quiet, quiet)
    (result,) = record["results"]
    assert (result["name"], result["isa"], result["test"], result["ratio"]) == (f"pp8 {best}", best, "pp8", 1.0)
    assert result["engine"] == "llamina" and len(result["seconds"]) == 2 and record["settings"]["isas"] == [best]


def test_kernels_in_a_process_of_their_own() -> None:
    best = features.steps()[-1]
    record = measure_kernel_isas(["Q8_0"], [1], Sizes(10_000, 4, 1), [best], "test", quiet)
    assert [r["name"] for r in record["results"]] == [f"Q8_0 n1 t1 {best}", f"Q8_0 n4 t1 {best}"]
    assert all(r["rate"] > 0 and r["ratio"] == 1 for r in record["results"])


def test_ratios_are_to_the_first() -> None:
    rates = (("a", "x", 2.0), ("a", "y", 1.0), ("b", "x", 3.0), ("b", "y", 3.0))
    found = with_isa_ratios([{"isa": isa, "test": test, "rate": rate} for isa, test, rate in rates])
    assert [result["ratio"] for result in found] == [1.0, 1.0, 1.5, 3.0]
