"""Models quantized on load: copies in the cache, known by what they are made of."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.errors import RequestError
from llamina.gguf import open_model, write

PROMPT = "Once upon a time"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for copies; compiled kernels are where they are."""
    monkeypatch.setattr("llamina.quantization.cached.cache_dir", lambda: tmp_path)
    yield tmp_path / "quantized"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_a_copy_is_made_once(stories: Path, cache: Path, tmp_path: Path) -> None:
    llamina.quantize(stories, tmp_path / "q8.gguf", "Q8_0")
    with llamina.load(tmp_path / "q8.gguf") as engine:
        expected = engine.logits(PROMPT)
    told: list[str] = []
    with llamina.load(stories, quantize="q8_0", progress=lambda what, done, total: told.append(what)) as engine:
        assert (engine.logits(PROMPT) == expected).all()
        assert engine.runner.file.source == str(stories)
        assert engine.runner.file.tensors["blk.0.attn_q.weight"].type.name == "Q8_0"
    (name,) = names(cache)
    assert name.startswith("stories260K-Q8_0-") and name.endswith(".gguf") and name in told
    before = (cache / name).stat().st_mtime_ns
    with llamina.load(stories, quantize="Q8_0") as engine:
        assert (engine.logits(PROMPT) == expected).all()
    assert names(cache) == [name] and (cache / name).stat().st_mtime_ns == before


def test_others_are_other_copies(stories: Path, cache: Path, tmp_path: Path) -> None:
    """Another type, other tensors, another model of the same name."""
    with llamina.load(stories, quantize="q8_0", quantize_tensors={"attn_v": "q4_0"}) as engine:
        kinds = {name: tensor.type.name for name, tensor in engine.runner.file.tensors.items()}
    assert (kinds["blk.0.attn_v.weight"], kinds["blk.0.attn_q.weight"]) == ("Q4_0", "Q8_0")
    llamina.load(stories, quantize="q8_0").close()
    llamina.load(stories, quantize="q4_0").close()
    assert len(names(cache)) == 3
    other = tmp_path / "other" / "stories260K.gguf"
    other.parent.mkdir()
    file = open_model(stories)
    changed = ("output_norm.weight", (64,), file.tensors["output_norm.weight"].type, np.ones(64, np.float32))
    write(other, file.metadata, [*(t for t in file.tensors.values() if t.name != changed[0]), changed])
    llamina.load(other, quantize="q8_0").close()
    assert len(names(cache)) == 4


def test_refusals(stories: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="type is 'q9': must be one of"):
        llamina.load(stories, quantize="q9")
    for lone in ({"quantize_tensors": {"attn_v": "q4_0"}}, {"quantize_imatrix": "i.gguf"}, {"requantize": True}):
        with pytest.raises(RequestError, match=f"{next(iter(lone))} says how a copy in fewer bits is made: give quant"):
            llamina.load(stories, **lone)
    llamina.quantize(stories, tmp_path / "q8.gguf", "Q8_0")
    with pytest.raises(RequestError, match="is Q8_0 already, and quantizing again loses more"):
        llamina.load(tmp_path / "q8.gguf", quantize="q4_0")
    assert not any(cache.glob("*.gguf")) and not any(cache.glob(".*.part"))
    llamina.load(tmp_path / "q8.gguf", quantize="q4_0", requantize=True).close()
    assert len(names(cache)) == 1
    with pytest.raises(RequestError, match="is Q8_0 already, and quantizing again loses more"):
        llamina.load(tmp_path / "q8.gguf", quantize="q4_0")


def test_importances(stories: Path, cache: Path, golden: Callable[[str], Path]) -> None:
    """Copies with them, and with others, are other copies."""
    wanted = {"quantize": "q4_0", "quantize_imatrix": golden("stories260K_imatrix.gguf")}
    with llamina.load(stories, **wanted) as engine:
        assert engine.runner.file.metadata["quantize.imatrix.chunks_count"] > 0
    llamina.load(stories, quantize="q4_0").close()
    assert len(names(cache)) == 2
