"""Answers and progress in a notebook with a kernel of its own."""

import sys
from pathlib import Path
from typing import Any

import pytest

from llamina.engine import load
from llamina.hub import progress_bar
from llamina.hub.bar import Bar, surface
from skips import import_peer


def run(*cells: str) -> list[list[Any]]:
    """The outputs of each cell."""
    nbclient, nbformat = import_peer("nbclient"), import_peer("nbformat")
    import_peer("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return [cell.outputs for cell in book.cells]


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own
def test_a_notebook(golden: Any) -> None:
    import_peer("ipywidgets")
    path: Path = golden("stories260K.gguf")
    answer, bar, lines, fetched = run(
        f"import llamina; engine = llamina.load({str(path)!r}, context=128)\n"
        "engine.generate('Once', max_tokens=5, temperature=0)",
        "from llamina.hub import progress_bar\nbar = progress_bar('parts')\n"
        "for done in range(3):\n    bar('gemm', done, 2)",
        "from importlib import util; util.find_spec = lambda name: None\nimport llamina.hub.bar as module\n"
        "module.find_spec = util.find_spec\nbar = progress_bar('bytes', 'fetching')\nbar('a', 0, 2); bar('a', 1, 2)",
        "from pathlib import Path; from llamina import hub; import llamina.hub.download as download\n"
        "def _fetch(entry, target, progress):\n    progress(entry.name, 1, 2)\n    raise SystemExit\n"
        "download._damage = lambda entry, target: 'gone'\ndownload._fetch = _fetch\n"
        "try:\n    hub.pull('smollm2')\nexcept SystemExit:\n    pass",
    )
    html = next(output.data["text/html"] for output in answer if "data" in output)
    assert html.startswith("<p>") and "5 tokens" in html
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in bar)
    assert [output.text for output in lines] == ["fetching a …\n"]
    assert [output.text for output in fetched] == ["fetching smollm2 …\n"]


def test_elsewhere_there_is_no_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert surface() is None and progress_bar("bytes") is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    found = progress_bar("bytes")
    assert found is not None
    found("x", 2, 2)  # nothing was to be done
    assert not found.drawn and capsys.readouterr().err == ""


def test_a_bar_is_drawn_until_all_is_done() -> None:
    with Bar("bytes") as bar:
        bar("x", 0, 0)
        assert not bar.drawn
        bar("x", 1, 2)
        assert bar.drawn
        bar("x", 2, 2)
        assert not bar.drawn
        bar("y", 0, 2)
    assert not bar.drawn


def test_loading_shows_one(golden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Bar] = []

    def remember(unit: Any, doing: str = "") -> Bar:
        made.append(Bar(unit, doing))
        return made[-1]

    monkeypatch.setattr("llamina.engine.runner.load.progress_bar", remember)
    load(golden("stories260K.gguf"), context=128).close()
    assert len(made) == 1
    load(golden("stories260K.gguf"), context=128, progress=lambda what, done, total: None).close()
    assert len(made) == 1
