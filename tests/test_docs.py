"""The documentation: links and anchors exist, the tour runs, and mkdocs builds it all."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import llamina
from skips import import_peer, needs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(ROOT.glob("*.md")),
        *(DOCS.rglob("*.md")),
        *(DOCS.glob("*.ipynb")),
        *(ROOT / folder / "README.md" for folder in ("examples", "benchmarks")),
    ]
)
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")


def parsed(path: Path) -> list[Token]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return MARKDOWN.parse(text)


def tokens(path: Path) -> Iterator[Token]:
    for token in parsed(path):
        yield token
        yield from token.children or ()


def links(path: Path) -> Iterator[str]:
    """The targets of links and pictures that are not on the web."""
    for token in tokens(path):
        found = [token.attrGet("href") or token.attrGet("src")]
        if token.type in ("html_block", "html_inline"):
            found = re.findall(r'(?:href|src)="([^"]+)"', token.content)
        yield from (str(to) for to in found if to and not re.match(r"[a-z]+:", str(to)))


@cache
def anchors(path: Path) -> set[str]:
    """The headings' names in addresses, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    parts = parsed(path)
    for opening, inline in pairwise(parts):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.add(name if not seen[name] else f"{name}-{seen[name]}")
            seen[name] += 1
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in links(path):
        to, _, anchor = link.partition("#")
        target = (path.parent / to).resolve() if to else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` & c\n\n[x](gone.md) [y](#a-b--c) ![z](#no) <a href='q'></a>\n\n<img src=\"p.png\">\n")
    assert list(links(page)) == ["gone.md", "#a-b--c", "#no", "p.png"]
    assert anchors(page) == {"a-b--c"}


def hook() -> Any:
    spec = spec_from_file_location("docs_pages", ROOT / "tools" / "docs_pages.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation() -> None:
    def flat(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            yield from (page for part in entry.values() for page in flat(part))
        else:
            yield from (page for part in entry for page in flat(part))

    listed = list(flat(hook().navigation()))
    assert sorted(listed) == sorted({*listed}), "twice"
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= {*listed}
    assert {"index.md", "tour.md", "reference/llamina.md"} <= {*listed}


def test_the_reference_has_every_public_name() -> None:
    made = hook()
    assert set(made.public_names("llamina")) == set(llamina.__all__) - {"__version__"}
    for package in made.PACKAGES:
        assert made.public_names(package), package
        assert made.summary(package).endswith((".", "```")), package


def test_the_reference_has_every_package_that_examples_import() -> None:
    programs = [path.read_text(encoding="utf-8") for path in PAGES if path.suffix == ".md"]
    programs += [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")]
    used = {match[1] for text in programs for match in re.finditer(r"\b(?:from|import) (llamina\.\w+)", text)}
    assert {"llamina.files", "llamina.models"} <= used <= set(hook().PACKAGES)


def test_links_of_made_pages() -> None:
    made, source = hook(), ROOT / "README.md"
    text = "[a](docs/x.md#y) `[b](c)` [examples/](examples/README.md) [the file](deploy/Dockerfile) [w](https://w.org)"
    assert made.relink(text, source, "index.md") == (
        "[a](x.md#y) `[b](c)` `examples/README.md` the file (`deploy/Dockerfile`) [w](https://w.org)"
    )
    assert made.relink("[t](tour.ipynb) [r](../README.md)", DOCS / "z.md", "z.md") == "[t](tour.md) [r](index.md)"
    assert made.relink("```\n[a](b.md)\n```\n", source, "index.md") == "```\n[a](b.md)\n```\n"


@needs("peer", find_spec("mkdocs") is not None and find_spec("mkdocstrings") is not None, "mkdocs is not installed")
def test_mkdocs_builds_without_a_warning(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
    page = (tmp_path / "site" / "reference" / "llamina.html").read_text(encoding="utf-8")
    assert 'id="llamina.Engine.generate"' in page and "fetched if need be" in page


def outputs(cell: Any) -> str:
    return "".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own
def test_the_tour_runs_and_says_what_it_says(tmp_path: Path) -> None:
    """Every cell again: its output is the stored one."""
    nbclient, nbformat = import_peer("nbclient"), import_peer("nbformat")
    import_peer("ipykernel")
    stored = nbformat.read(DOCS / "tour.ipynb", as_version=4)
    fresh = nbformat.read(DOCS / "tour.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        fresh, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    code = [(a, b) for a, b in zip(fresh.cells, stored.cells, strict=True) if a.cell_type == "code"]
    assert len(code) > 10
    for ran, kept in code:
        assert outputs(ran) == outputs(kept), kept.source
