"""Compute llama.cpp's logits of golden models, and add them to the golden facts.

    python tools/logit_facts.py NAME ...

The models are those of tests/golden/archs.json that have no logits yet. llama.cpp is the one in xllamacpp.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "models"))

from live import every_logits

from golden import arch_models
from golden_facts import GOLDEN, SPECS

TOKENS = 40


def main() -> None:
    tokens = np.random.default_rng(1).integers(0, 128, TOKENS, np.int32)
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.gguf"
            arch_models.write(SPECS[name], path)
            logits = every_logits(path, tokens.tolist(), 256)
        print(f"{name}: {logits.shape}, {np.abs(logits).mean():.3g} on average")
        with zipfile.ZipFile(GOLDEN / "arch_logits.npz", "a", zipfile.ZIP_DEFLATED) as facts:  # others stay as they are
            for key, array in ((name, logits), (f"{name}.tokens", tokens)):
                with facts.open(f"{key}.npy", "w") as file:
                    np.save(file, array)


if __name__ == "__main__":
    main()
