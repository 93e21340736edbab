"""Compute what llama.cpp makes of the tiny encoders of tests/golden/encoder_models.py: tests/golden/encoders.npz.

    python tools/encoder_facts.py

llama.cpp is the one in xllamacpp.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "models"))

from live import embedding

from golden.encoder_models import CONTEXT, FACTS, TOKENS, save
from golden_facts import GOLDEN


def main() -> None:
    facts = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (tiny, pooling, width) in FACTS.items():
            path = save(Path(folder) / "tiny.gguf", tiny, pooling)
            facts[name] = embedding(path, TOKENS, CONTEXT, width)
            print(name, facts[name].shape, "mean", float(np.abs(facts[name]).mean()))
    np.savez_compressed(GOLDEN / "encoders.npz", **facts)


if __name__ == "__main__":
    main()
