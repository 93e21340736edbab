"""Golden facts about architectures: tiny models, and what llama.cpp makes of them."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

Files = Callable[[str], Path]


@pytest.fixture(scope="session")
def files(golden: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The tiny model of a name, written by the golden facts' own script."""
    spec = importlib.util.spec_from_file_location("arch_models", golden("arch_models.py"))
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    specs = json.loads(golden("archs.json").read_text())
    folder = tmp_path_factory.mktemp("archs")

    def find(name: str) -> Path:
        path = folder / f"{name}.gguf"
        if not path.exists():
            script.write(specs[name], path)
        return path

    return find


@pytest.fixture(scope="session")
def truth(golden: Files) -> dict[str, npt.NDArray[np.float32]]:
    return dict(np.load(golden("arch_logits.npz")))
