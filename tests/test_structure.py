"""The shape of the source: who imports whom, how long files are, what things are called."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import llamina
from golden.encoder_models import TINY
from golden_facts import SPECS
from llamina.models import ALIASES, SHARED, architectures

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "llamina"
FILES = sorted(SOURCE.rglob("*.py"))

# Who may import whom: anything above one's own line, unless `ONLY` says less. `hub` stands above `engine`,
# which asks it where a pulled model is. `__init__` is the package's own list of public names.
ORDER = [
    "errors",
    "places",
    "gguf",
    "quant",
    "tokenizer",
    "ops",
    "models",
    "plan",
    "backends",
    "cache",
    "grammar",
    "sampling",
    "chat",
    "hub",
    "quantization",
    "convert",
    "adapters",
    "media",
    "vision",
    "sound",
    "engine",
    "files",
    "lm",
    "server",
    "repl",
    "tui",
    "bench",
    "cli",
    "llm_plugin",
    "__main__",
    "__init__",
]
ONLY = {
    "errors": set(),
    "places": {"errors"},
    "gguf": {"errors"},
    "tokenizer": {"errors", "gguf"},
    "ops": {"errors", "gguf", "quant"},
    "models": {"errors", "ops"},
    "plan": {"errors", "ops"},
    "cache": {"errors", "ops"},
    "grammar": {"errors", "tokenizer"},
    "sampling": {"errors", "backends", "grammar", "tokenizer"},
    "chat": {"errors", "tokenizer", "grammar"},
    "hub": {"errors", "places", "gguf"},
    "quantization": {"errors", "places", "gguf", "quant", "backends"},
    "convert": {"errors", "gguf", "quant", "tokenizer", "quantization"},
    "adapters": {"errors", "gguf", "quant", "tokenizer", "ops", "convert"},
    "media": {"errors", "ops", "models", "plan", "backends"},
    "vision": {"errors", "quant", "ops", "models", "media"},
    "sound": {"errors", "quant", "ops", "models", "media"},
    "lm": {
        "errors", "gguf", "quant", "tokenizer", "ops", "models", "plan", "backends", "cache", "sampling", "convert",
        "engine",
    },
}  # fmt: skip
NEVER = {"backends": {"models", "tokenizer"}}
SUBROOMS = {  # the same inside a package: who may import whom of its own
    "backends": [
        "kv_types", "base", "host", "states", "split", "links", "parallel", "reference", "cpu", "cuda", "encode",
        "survey", "pressure", "leftovers", "__init__",
    ],
    "backends/cpu": [
        "features", "tiling", "layout", "kernels", "jit", "runtime", "lowering", "program", "backend",
        "__init__",
    ],
    "backends/cpu/kernels": [
        "device", "vector", "walk", "formats", "encode", "gemv", "gemm", "amx", "matmul", "attention", "pointwise",
        "recurrent", "__init__",
    ],
}  # fmt: skip

LONGEST = 400
TABLES = {"quant/grids.py", "tokenizer/pretokenizers.py"}  # may be longer
BANNED = re.compile(r"Manager|Helper|Util|Handler|Factory|Wrapper|^_?Base|Impl$|Common|Misc")
BANNED_FILES = re.compile(r"util|helper|common|misc|manager|handler", re.IGNORECASE)


def part(path: Path) -> str:
    """The package or module, right under llamina, that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, part) of every import of our own code, at the top, inside functions, or for types only."""
    package = ["llamina", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = [*start, *(node.module or "").split(".")]
            module = [name for name in module if name]
            # `from .. import gguf` names a part; `from ..gguf import write` is in one already
            targets = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "llamina":
                yield node.lineno, target[1] if len(target) > 1 else "__init__"


def allowed(importer: str) -> set[str]:
    if importer in ONLY:
        return ONLY[importer] | {importer}
    return set(ORDER[: ORDER.index(importer) + 1]) - NEVER.get(importer, set())


def test_every_part_has_its_place() -> None:
    assert {part(path) for path in FILES} <= set(ORDER)
    for package, order in SUBROOMS.items():
        found = {path.stem for path in (SOURCE / package).iterdir() if path.suffix == ".py" or path.is_dir()}
        assert found - {"__pycache__"} == set(order)
    for importer, targets in ONLY.items():
        assert all(ORDER.index(target) < ORDER.index(importer) for target in targets), "the table itself"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    importer = part(path)
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for line, target in imports(path)
        if target not in allowed(importer) and target in ORDER
    ]
    assert not wrong, "\n".join(wrong)


def modules(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of our own code, except for types only and inside functions."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("package", SUBROOMS)
def test_imports_go_one_way_inside_a_room(package: str) -> None:
    """Those at the top of a file; a function may reach back for what it needs late."""
    order, wrong = SUBROOMS[package], []
    for path in sorted((SOURCE / package).rglob("*.py")):
        own = path.relative_to(SOURCE / package).parts[0].removesuffix(".py")
        prefix = f"llamina.{package.replace('/', '.')}."
        for line, module in modules(path):
            target = module.removeprefix(prefix).split(".")[0]
            if module.startswith(prefix) and target in order and order.index(target) > order.index(own):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_nobody_else_knows_a_device() -> None:
    """A backend is asked for by its name; whatever is particular to one stays inside it."""
    known = [
        f"{path.relative_to(ROOT)} names {match[0]}"
        for path in FILES
        if part(path) != "backends"
        for match in re.finditer(r"llamina\.backends\.cpu\b", path.read_text(encoding="utf-8"))
    ]
    assert known == []


def test_the_walk_sees_imports(tmp_path: Path) -> None:
    """Relative, absolute, lazy and for types only: the test above would notice each of them."""
    path = SOURCE / "backends" / "nobody.py"  # never written
    code = "from ..models import build\nfrom .. import models\ndef f():\n    import llamina.models.llama\n"
    code += "if TYPE_CHECKING:\n    from llamina.models.config import Config\n"

    class Written(type(path)):  # type: ignore[misc]
        def read_text(self, *args: object, **kwargs: object) -> str:
            return code

    found = list(imports(Written(path)))
    assert [target for _, target in found] == ["models"] * 4


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_are_short(path: Path) -> None:
    if path.relative_to(SOURCE).as_posix() not in TABLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_names_say_the_noun(path: Path) -> None:
    assert not BANNED_FILES.search(path.stem)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert [name for name in classes if BANNED.search(name)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_one_error_tree() -> None:
    """Exceptions that may reach a caller descend from those of errors.py."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            private = isinstance(node, ast.ClassDef) and node.name.startswith("_")
            if isinstance(node, ast.ClassDef) and path.name != "errors.py" and not private:
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                assert not bases & {"Exception", "ValueError", "RuntimeError", "OSError"}, node.name


def test_every_architecture_has_facts() -> None:
    """At least one tiny model with llama.cpp's logits for each name that we say we can run: stored, or live."""
    known = {entry["arch"] for entry in SPECS.values()}
    live = (Path(__file__).parent / "models" / "test_expert_variants.py").read_text(encoding="utf-8")
    known |= set(re.findall(r'arch="([\w-]+)"', live))
    known |= {tiny.arch for tiny in TINY.values()}
    assert set(architectures()) - known == set()


def test_shared_model_files_exist() -> None:
    stems = {path.stem for path in (SOURCE / "models").glob("*.py")} - {"__init__"}
    assert stems >= SHARED
    assert set(ALIASES.values()) <= stems


def test_every_architecture_is_a_model() -> None:
    from importlib import import_module

    from llamina.models import Decoder

    for name in architectures():
        module = import_module(f"llamina.models.{ALIASES.get(name, name.replace('-', '_'))}")
        assert issubclass(module.Model, Decoder)
        assert module.Model.__mro__[1] is Decoder, "an architecture extends the frame, not a sibling"


def test_public_names() -> None:
    for name in llamina.__all__:
        assert getattr(llamina, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        llamina.nonsense  # noqa: B018
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == llamina.__version__


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import llamina", ["numba", "llvmlite", "numpy", "tokenizers", "jinja2", "huggingface_hub"]),
        ("import llamina; llamina.Tokenizer", ["numba", "llvmlite", "huggingface_hub", "click"]),
        ("import llamina.gguf", ["numba", "llvmlite", "tokenizers", "huggingface_hub"]),
        (
            "import llamina; llamina.load, llamina.Sampling",
            ["numba", "llvmlite", "huggingface_hub", "click", "llguidance"],
        ),
        ("import llamina.cli", ["numba", "llvmlite", "huggingface_hub"]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_importing_does_not_import(code: str, absent: list[str]) -> None:
    program = f"{code}\nimport sys\nprint([m for m in {absent!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"], ids=lambda c: c.replace(" ", "_"))
def test_tools_find_nothing(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split(), *([] if command == "mypy" else ["src", "tests", "tools", "examples"])],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-4000:]
