"""Golden facts about architectures: what llama.cpp makes of their tiny models."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

Files = Callable[[str], Path]


@pytest.fixture(scope="session")
def truth(golden: Files) -> dict[str, npt.NDArray[np.float32]]:
    return dict(np.load(golden("arch_logits.npz")))
