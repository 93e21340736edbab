"""KL divergence by llama.cpp's definition: its own figures, its files, and what is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.bench.divergence import ModelBase, compare, measure_divergence, save_logits
from llamina.bench.saved_logits import SavedLogits, is_saved, log_probabilities, rounded
from llamina.errors import ModelFileError, ModelNotFound, RequestError
from tales import TALE

# llama-quantize (ggml 0c1e570) --allow-requantize SmolLM2-135M-Instruct.Q4_1.gguf q4_0.gguf Q4_0, and both to F16
# (base.gguf, model.gguf); llama-perplexity -m base.gguf -f tale.txt -c 128 --chunks 2 --kl-divergence-base base.logits;
# llama-perplexity -m model.gguf -c 128 --kl-divergence --kl-divergence-base base.logits, where tale.txt is TALE and a
# newline.
SMOLLM2 = {
    "perplexity": (2.648511, 0.361795),
    "base": (2.343463, 0.325072),
    "log_ratio": (0.122368, 0.034793),
    "kl": (0.132005, 0.014111),
    "probability_change": (-0.05622, 0.01182),
    "same_top": (0.87302, 0.02978),
}
KL = {"99": 0.653331, "95": 0.378673, "90": 0.310553, "50": 0.077067, "10": 0.022848}
# The same of stories260K.gguf and what llama-quantize makes of it as Q4_0, -c 64, all windows.
STORIES = {"perplexity": 6.729784, "base": 6.663271, "kl": 0.086312, "same_top": 0.83871, "rms": 0.09472}


def quiet(done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def quantized(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("divergence") / "q4_0.gguf"
    llamina.quantize(stories, path, "Q4_0")
    return path


def test_llama_cpp_s_figures(smollm2: Path, tmp_path: Path) -> None:
    """Of float weights, as each engine rounds activations in its own way for others."""
    few, base, model = (tmp_path / name for name in ("q4_0.gguf", "base.gguf", "model.gguf"))
    llamina.quantize(smollm2, few, "Q4_0", requantize=True)
    llamina.quantize(few, model, "F16", requantize=True)
    llamina.quantize(smollm2, base, "F16", requantize=True)
    with llamina.load(model, context=128) as engine, llamina.load(base, context=128) as other:
        found = measure_divergence(engine, ModelBase(other, TALE, 128, 2), quiet).facts
    assert (found["perplexity"], found["error"]) == pytest.approx(SMOLLM2["perplexity"], rel=2e-3)
    assert (found["base"]["perplexity"], found["base"]["error"]) == pytest.approx(SMOLLM2["base"], rel=2e-3)
    for name in ("log_ratio", "kl", "probability_change", "same_top"):
        assert (found[name]["mean"], found[name]["error"]) == pytest.approx(SMOLLM2[name], rel=1e-2), name
    assert found["kl"]["mean"] == pytest.approx(SMOLLM2["kl"][0], rel=5e-3)
    for percent, value in KL.items():
        assert found["kl"]["percentiles"][percent] == pytest.approx(value, rel=1e-2)
    assert found["probability_change"]["rms"] == pytest.approx(0.14365, rel=5e-3)


def test_figures_of_a_quantized_model(stories: Path, quantized: Path) -> None:
    told: list[tuple[int, int]] = []
    with llamina.load(quantized, context=64) as engine, llamina.load(stories, context=64) as other:
        base = ModelBase(other, TALE, 64)
        found = measure_divergence(engine, base, lambda done, total: told.append((done, total))).facts
    means = {name: found[name]["mean"] for name in ("kl", "same_top")}
    means |= {"perplexity": found["perplexity"], "base": found["base"]["perplexity"]}
    assert {**means, "rms": found["probability_change"]["rms"]} == pytest.approx(STORIES, rel=1e-2)
    assert told == [(done, 26) for done in range(27)] and found["tokens"] == 26 * 31


def test_saved_logits_are_the_model_s(stories: Path, quantized: Path, tmp_path: Path) -> None:
    path = tmp_path / "base.logits"
    with llamina.load(quantized, context=64) as engine, llamina.load(stories, context=64) as other:
        plain = save_logits(other, TALE, 64, path, quiet, chunks=3)
        live = measure_divergence(engine, ModelBase(other, TALE, 64, 3), quiet)
        saved = measure_divergence(engine, SavedLogits(path), quiet)
        first = other.logits([other.tokenizer.bos or 0, *other.encode(TALE)[1:64]])
    assert live.facts == saved.facts
    assert plain.estimate.perplexity == pytest.approx(live.base_perplexity.perplexity, rel=1e-4)
    file = SavedLogits(path)
    assert is_saved(path) and (file.size, file.vocab, len(file.windows)) == (64, 512, 3)
    exact = first[32:63] - np.log(np.exp(first[32:63]).sum(-1, keepdims=True))
    found = log_probabilities(file.rows(0), 512)
    near = exact > exact.max(1, keepdims=True) - 15.9
    assert np.abs(found - exact)[near].max() < 2e-4
    assert path.read_bytes()[:20] == b"_logits_" + struct.pack("<3i", 64, 512, 3)


def test_a_model_is_as_far_from_itself_as_rounding() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (7, 33)).astype(np.float32)
    rows = rounded(logits)
    assert rows.shape == (7, 4 + 34)
    losses, base, divergences, changes, same = compare(logits, rows, [1, 2, 3, 4, 5, 6, 7])
    assert np.abs(losses - base).max() < 1e-3 and np.abs(changes).max() < 1e-3
    assert np.abs(divergences).max() < 1e-4 and same.all()
    assert (rounded(np.zeros((1, 4), np.float32))[0, 4:] == 0).all()


def test_divergence_is_what_it_says() -> None:
    """Σ p log(p / q)."""
    rng = np.random.default_rng(1)
    q, p = (rng.normal(0, 2, (5, 40)).astype(np.float32) for _ in range(2))
    found = compare(q, rounded(p), [0] * 5)
    log_p, log_q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (p.astype(float), q.astype(float)))
    assert found[2] == pytest.approx((np.exp(log_p) * (log_p - log_q)).sum(1), rel=1e-3)
    assert found[3] == pytest.approx(np.exp(log_q[:, 0]) - np.exp(log_p[:, 0]), abs=1e-4)
    assert (found[4] == (q.argmax(1) == p.argmax(1))).all()


def test_refusals(stories: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.logits"
    with pytest.raises(ModelNotFound, match="no such file"):
        SavedLogits(path)
    path.write_bytes(b"_logits_" + struct.pack("<3i", 8, 4, 2) + bytes(100))
    with pytest.raises(ModelFileError, match="has 120 bytes, which is not what its header says"):
        SavedLogits(path)
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelFileError, match="holds no logits"):
        SavedLogits(path)
    assert not is_saved(path) and not is_saved(tmp_path)
    path.write_bytes(b"_logits_" + struct.pack("<3i", 8, 4, 1) + bytes(4 * 8 + 2 * 3 * 8))
    with (
        llamina.load(stories, context=64) as engine,
        pytest.raises(RequestError, match="the base has 4 tokens in its vocabulary, the model 512"),
    ):
        measure_divergence(engine, SavedLogits(path), quiet)
