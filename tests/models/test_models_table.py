"""docs/models.md says what is so."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from golden_facts import SPECS
from llamina.models import architectures

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table() -> Any:
    """The script that makes the page."""
    spec = importlib.util.spec_from_file_location("models_table", ROOT / "tools" / "models_table.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_page_is_up_to_date(table: Any) -> None:
    page = table.DOCUMENT.read_text(encoding="utf-8")
    assert table.document(table.written(page)) == page, "run: python tools/models_table.py"


def test_the_page_has_every_golden_model(table: Any) -> None:
    errors = table.written(table.DOCUMENT.read_text(encoding="utf-8"))
    assert {name: arch for name, (arch, _) in errors.items()} == {name: spec["arch"] for name, spec in SPECS.items()}
    assert {arch for arch, error in errors.values() if error is not None} <= set(architectures())
    assert all(error is None or error <= table.LIMIT for _, error in errors.values())


def test_the_errors_are_those_measured(table: Any) -> None:
    """To a factor of 3, for they are printed with one digit, and other instructions round a little differently."""
    told = table.written(table.DOCUMENT.read_text(encoding="utf-8"))
    for name, (_, error) in table.measure(SPECS).items():
        stale = f"{name} is {error:.0e}, the page says {told[name][1]:.0e}: run python tools/models_table.py"
        assert told[name][1] / 3 < error < 3 * told[name][1], stale
