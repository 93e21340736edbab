"""Manual pages, versions, and what the page about the command line says."""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from llamina import __version__
from llamina.cli.app import CODES, VERBS
from skips import needs

Invoke = Callable[..., Result]
DOCS = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")


@pytest.fixture
def pages(invoke: Invoke, tmp_path: Path) -> list[Path]:
    result = invoke("man", "--output", tmp_path / "man1")
    assert result.exit_code == 0
    return [Path(line) for line in result.stdout.splitlines()]


def test_every_command_has_a_page(pages: list[Path]) -> None:
    names = {path.stem for path in pages}
    assert {"llamina", "llamina-plan-show", "llamina-bench-serve", *(f"llamina-{verb}" for verb in VERBS)} <= names
    assert "llamina-hub" not in names
    text = next(path for path in pages if path.stem == "llamina-run").read_text(encoding="utf-8")
    assert r"\-\-temperature" in text and ".nf" in text and "SYNOPSIS" in text


@needs("peer", shutil.which("groff") is not None, "groff is not installed")
def test_pages_are_without_mistakes(pages: list[Path]) -> None:
    """Each shows its options, and every warning that groff has is on."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-Kutf8", "-ww", *map(str, pages)], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0 and done.stderr == ""
    shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
    assert "LLAMINA-BENCH-SERVE(1)" in shown and "--max-tokens" in shown and "\\n" not in shown


@needs("peer", shutil.which("mandoc") is not None, "mandoc is not installed")
def test_pages_are_without_mistakes_elsewhere(pages: list[Path]) -> None:
    """But for the date, which they have not: a page is that of its version."""
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *map(str, pages)], capture_output=True, encoding="utf-8")
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


def test_one_page(invoke: Invoke) -> None:
    assert invoke("man").stdout.startswith('.TH "LLAMINA" 1')
    assert ".TH" in invoke("man", "plan", "diff").stdout
    assert "there are diff, show" in invoke("man", "plan", "nothing").stderr
    assert "llamina list has none" in invoke("man", "list", "x").stderr
    assert invoke("man", "run", "--output", "x").exit_code == 2


def test_versions(invoke: Invoke) -> None:
    lines = invoke("version").stdout.splitlines()
    assert len(lines) == 2 and lines[0].startswith(f"llamina {__version__}, Python {platform.python_version()}, numpy ")
    assert lines[1].startswith("backend ")
    facts = json.loads(invoke("version", "--json").stdout)
    assert facts["llamina"] == __version__ and facts["numba"] and facts["cpu"] and facts["cores"] >= 1


def test_the_page_has_every_verb_and_exit_code(invoke: Invoke) -> None:
    assert {verb for verb in VERBS if f"`{verb}`" not in DOCS} == set()
    told = dict(re.findall(r"^\| (\d+) \| (.+?)[:;,|]", DOCS, re.MULTILINE))
    assert set(map(int, told)) == set(CODES)
    help = " ".join(invoke("--help").stdout.split())
    for code, what in CODES.items():
        assert f"{code} {what}" in help and told[str(code)].startswith(what)
    assert set(re.findall(r"LLAMINA_\w+", help)) <= set(re.findall(r"LLAMINA_\w+", DOCS))
