"""Write docs/models.md: the architectures, what they cover, and how far their logits are from llama.cpp's.

    python tools/models_table.py

Runs every golden model (tests/golden) on the CPU: a minute, and longer the first time, when kernels are compiled.
"""

import importlib.util
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import llamina
from llamina import sound
from llamina.backends import BACKENDS, backend
from llamina.convert.encoders import ENCODERS
from llamina.convert.families import FAMILIES
from llamina.gguf import TENSOR_TYPES
from llamina.models import about, architectures
from llamina.vision import about as about_projector
from llamina.vision import projectors

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "models.md"
GOLDEN = ROOT / "tests" / "golden"
LIMIT = 1e-4  # of the normalised mean squared error
ROW = re.compile(r"^\| `([^`]+)` \|.*\| (`[^|]+) \| [^|]* \|$", re.MULTILINE)  # architecture, and its errors


def main() -> None:
    DOCUMENT.write_text(document(measure(json.loads((GOLDEN / "archs.json").read_text()))), encoding="utf-8")


def measure(specs: Mapping[str, Any]) -> dict[str, tuple[str, float | None]]:
    """Each golden model's architecture, and its error; None if it does not run here."""
    truth = np.load(GOLDEN / "arch_logits.npz")
    found: dict[str, tuple[str, float | None]] = {}
    for name, spec in sorted(specs.items()):
        found[name] = spec["arch"], error(name, spec, truth) if spec["arch"] in architectures() else None
        print(f"{name:30} {found[name][1]}")
    return found


def error(name: str, spec: Any, truth: Mapping[str, Any]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        _writer().write(spec, path)
        with llamina.load(path, kv_type="f32") as engine:
            got = engine.logits(truth[f"{name}.tokens"])
    return float(np.sum(np.square(got - truth[name])) / np.sum(np.square(truth[name])))


def _writer() -> Any:
    """The golden facts' own script, which writes the models."""
    spec = importlib.util.spec_from_file_location("arch_models", GOLDEN / "arch_models.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def document(errors: Mapping[str, tuple[str, float | None]]) -> str:
    """The page, with the errors as they are written on it."""
    right = [error for _, error in errors.values() if error is not None and error <= LIMIT]
    missing = [f"`{name}` ({arch})" for name, (arch, error) in sorted(errors.items()) if error is None]
    kinds = sorted(backend("cpu").formats, key=[kind.name for kind in TENSOR_TYPES.values()].index)
    lines = [
        "# Models",
        "",
        "Made by `python tools/models_table.py`.",
        "",
        f"{len(architectures())} architectures. {len(right)} of {len(errors)} golden models (tiny, their logits",
        f"computed by llama.cpp) agree with it: the normalised mean squared error is {max(right):.0e} at most,",
        f"and {LIMIT:.0e} would do.",
        *([f"Not yet: {', '.join(missing)}."] if missing else []),
        "",
        f"All run on the backends {_listed(BACKENDS)}, with matrices in any of",
        f"{_listed(kinds)}.",
        "",
        "| architecture | covers | golden models and their errors | `llamina convert` makes it of |",
        "| --- | --- | --- | --- |",
        *(f"| `{name}` | {about(name)} | {_errors(name, errors)} | {_sources(name)} |" for name in architectures()),
        "",
        "## Encoders of pictures",
        "",
        f"{len(projectors())} kinds of `mmproj` files, by their `clip.projector_type` ([pictures.md](pictures.md)).",
        "What is known of them comes from tiny models with random weights, beside llama.cpp and `transformers`:",
        "no real weights were at hand.",
        "",
        "| projector | covers | `llamina convert --mmproj` makes it of |",
        "| --- | --- | --- |",
        *(f"| `{name}` | {about_projector(name)} | {_encoders(name)} |" for name in projectors()),
        "",
        "## Encoders of sounds",
        "",
        f"{len(sound.projectors())} kinds of `mmproj` files ([sound.md](sound.md)), known as those of pictures are;",
        "Whisper's encoder is also known with real weights.",
        "",
        "| projector | covers | `llamina convert --mmproj` makes it of |",
        "| --- | --- | --- |",
        *(f"| `{name}` | {sound.about(name)} | {_encoders(name)} |" for name in sound.projectors()),
        "",
    ]
    return "\n".join(lines)


def written(page: str) -> dict[str, tuple[str, float | None]]:
    """The errors on a page."""
    found: dict[str, tuple[str, float | None]] = {
        name: (architecture, float(error))
        for architecture, listed in ROW.findall(page)
        for name, error in re.findall(r"`([^`]+)` ([^,]+)", listed)
    }
    missing = re.search(r"^Not yet: (.*)\.$", page, re.MULTILINE)
    for name, architecture in re.findall(r"`([^`]+)` \(([^)]+)\)", missing[1] if missing else ""):
        found[name] = architecture, None
    return found


def _errors(architecture: str, errors: Mapping[str, tuple[str, float | None]]) -> str:
    own = sorted((name, error) for name, (arch, error) in errors.items() if arch == architecture and error is not None)
    return ", ".join(f"`{name}` {error:.0e}" for name, error in own) or "beside llama.cpp, in the tests"


def _sources(architecture: str) -> str:
    return ", ".join(sorted(name for name, family in FAMILIES.items() if family.architecture == architecture))


def _encoders(projector: str) -> str:
    return ", ".join(sorted(name for name, kinds in ENCODERS.items() if kinds[0].projector == projector))


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    main()
