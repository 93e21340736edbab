"""Pages of the documentation that are no files of docs/, and the navigation: a hook of mkdocs (see mkdocs.yml).

README.md is the first page, docs/tour.ipynb a page with its outputs, and each public package has a page of reference.
A page of docs/ that `SECTIONS` does not name is listed under "More".
"""

import ast
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "llamina"
SECTIONS = {
    "Start": ["index.md", "recipes.md", "tour.md"],
    "Use": [
        "python.md", "command-line.md", "terminal.md", "tools.md", "pictures.md", "sound.md", "models.md", "quality.md",
    ],
    "Serve": ["serving.md", "llama-server.md", "responses.md", "protection.md", "metrics.md", "page.md"],
    "Inside": ["architecture.md", "add-a-model.md"],
}  # fmt: skip
# The packages whose `__all__` is for everybody; `llamina` itself first.
PACKAGES = (
    "llamina", "llamina.errors", "llamina.gguf", "llamina.files", "llamina.tokenizer", "llamina.chat",
    "llamina.sampling", "llamina.grammar", "llamina.hub", "llamina.convert", "llamina.quantization", "llamina.quant",
    "llamina.lm", "llamina.models", "llamina.ops", "llamina.plan", "llamina.backends",
)  # fmt: skip
FIRST = ("load", "Engine")  # what a reader looks for
# Code, which is left as it is, or a link or a picture: its text and its target.
_LINK = re.compile(r"^```.*?^```|`[^`\n]*`|(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<to>[^()\s]+)\)", re.S | re.M)


# ---- what mkdocs calls -------------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    config.nav = navigation()
    return config


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    made = path in ("index.md", "tour.md") or path.startswith("reference/")
    return markdown if made else relink(markdown, DOCS / path, path)


# ---- what there is -----------------------------------------------------------------------------------------------


def pages() -> dict[str, str]:
    """The pages that are made, by their path."""
    readme, tour = ROOT / "README.md", DOCS / "tour.ipynb"
    found = {"index.md": relink(readme.read_text(encoding="utf-8"), readme, "index.md")}
    found["tour.md"] = relink(notebook(json.loads(tour.read_text(encoding="utf-8"))), tour, "tour.md")
    return found | {_page(package): reference(package) for package in PACKAGES}


def navigation() -> list[Any]:
    """Sections of pages, those that are there; what no section names is under "More"."""
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} | pages().keys()
    named = {section: [page for page in listed if page in files] for section, listed in SECTIONS.items()}
    decisions = sorted(page for page in files if page.startswith("decisions/"))
    known = {page for listed in named.values() for page in listed} | {*decisions} | {_page(p) for p in PACKAGES}
    sections: list[Any] = [{section: listed} for section, listed in named.items()]
    sections[-1]["Inside"] = [*named["Inside"], {"Decisions": decisions}]
    sections.append({"API reference": [{package: _page(package)} for package in PACKAGES]})
    more = sorted(files - known)
    return [*sections, {"More": more}] if more else sections


def _page(package: str) -> str:
    return f"reference/{package}.md"


# ---- pages that are made -----------------------------------------------------------------------------------------


def reference(package: str) -> str:
    """What a package is, and its public names, for mkdocstrings to fill in."""
    parts = [f"# {package}", summary(package), *(f"::: {package}.{name}" for name in public_names(package))]
    return "\n\n".join(parts) + "\n"


def summary(package: str) -> str:
    """The first paragraph of a package's docstring; that of errors.py goes on with the tree."""
    first, _, rest = str(ast.get_docstring(_module(package))).partition("\n\n")
    return f"{first}\n\n```text\n{rest}\n```" if "├" in rest else first


def public_names(package: str) -> list[str]:
    """What `__all__` lists, in its order but `FIRST`; the classes of a module without one."""
    body = _module(package).body
    for node in body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
            return sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    return [node.name for node in body if isinstance(node, ast.ClassDef)]


def _module(package: str) -> ast.Module:
    path = SOURCE.joinpath(*package.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def notebook(book: Any) -> str:
    """The cells of a notebook as Markdown, with the outputs that are text."""
    return "\n\n".join(part for cell in book["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: Any) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    texts = ["".join(output.get("text") or output["data"]["text/plain"]) for output in cell["outputs"]]
    code = [f"```python\n{source}\n```"]
    return [*code, "```text\n" + "".join(texts).rstrip("\n") + "\n```"] if texts else code


def relink(markdown: str, source: Path, page: str) -> str:
    """Links of a file as links of the page that it becomes; those to files that are no pages become plain text."""
    return _LINK.sub(_relinked(source.parent, (DOCS / page).parent), markdown)


def _relinked(folder: Path, page_folder: Path) -> Callable[[re.Match[str]], str]:
    def change(match: re.Match[str]) -> str:
        text, to = match["text"], match["to"]
        if text is None or re.match(r"[a-z]+:|#|//", to):
            return match[0]
        path, hash_sign, anchor = to.partition("#")
        target = Path(os.path.normpath(folder / path))
        if target == ROOT / "README.md":
            target = DOCS / "index.md"
        if not target.is_relative_to(DOCS):
            shown, place = text.strip("[]`"), target.relative_to(ROOT).as_posix()
            return f"`{place}`" if shown.strip("/") in place else f"{shown} (`{place}`)"
        target = target.with_suffix(".md") if target.suffix == ".ipynb" else target
        return f"{text}({Path(os.path.relpath(target, page_folder)).as_posix()}{hash_sign}{anchor})"

    return change
