"""Types chosen under a budget: the choice itself, and measured errors."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import llamina
from llamina.errors import RequestError
from llamina.gguf import GGUF, tensor_type, write
from llamina.quantization import Imatrix, choose_types
from llamina.quantization.auto import Candidate, spend

KIND = tensor_type("F32")
METADATA = {"general.architecture": "llama", "llama.block_count": 2, "llama.attention.head_count": 4}


def candidate(nbytes: int, error: float) -> Candidate:
    return Candidate(KIND, nbytes, error)


def total(chosen: dict[str, Candidate], weights: dict[str, float]) -> float:
    return sum(weights.get(name, 1.0) * c.error for name, c in chosen.items())


def test_as_good_as_trying_everything() -> None:
    """Within what the last step is worth: types have sizes, so a budget is not always used up."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        candidates = {}
        for name in "abcde":
            sizes, errors = np.sort(rng.integers(1, 20, 4)), np.sort(rng.random(4))[::-1]
            candidates[name] = [candidate(int(s), float(e)) for s, e in zip(sizes, errors, strict=True)]
        weights = {name: float(rng.random() + 0.1) for name in candidates}
        least = sum(found[0].nbytes for found in candidates.values())
        budget = least + int(rng.integers(0, 40))
        found = spend(candidates, budget, weights)
        assert sum(c.nbytes for c in found.values()) <= budget
        every = [dict(zip(candidates, one, strict=True)) for one in product(*candidates.values())]
        best = min(total(one, weights) for one in every if sum(c.nbytes for c in one.values()) <= budget)
        largest = max(weights[name] * (f[0].error - f[-1].error) for name, f in candidates.items())
        assert best <= total(found, weights) <= best + largest


def test_bits_go_where_they_help() -> None:
    candidates = {name: [candidate(10, 0.5), candidate(20, 0.1)] for name in ("a", "b")}
    assert spend(candidates, 30, {"b": 3.0})["b"].nbytes == 20 and spend(candidates, 30, {"a": 3.0})["a"].nbytes == 20
    assert all(c.nbytes == 20 for c in spend(candidates, 40, {}).values())
    worse = {"a": [candidate(10, 0.5), candidate(15, 0.6), candidate(20, 0.1)]}
    assert spend(worse, 19, {})["a"].nbytes == 10, "larger and worse is no choice"
    with pytest.raises(RequestError, match=r"the target is too small: at least 20\.00 are needed"):
        spend(candidates, 19, {})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Matrices of normal numbers; one of them is easy, with numbers of one size."""
    path, rng = tmp_path_factory.mktemp("auto") / "model.gguf", np.random.default_rng(0)
    shapes = {"token_embd.weight": (64, 256), "output_norm.weight": (256,)}
    shapes |= {f"blk.{i}.attn_{k}.weight": (128, 256) for i in range(2) for k in ("q", "v")}
    shapes |= {"blk.0.ffn_down_exps.weight": (2, 64, 96)}
    tensors = []
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if name == "blk.1.attn_v.weight":
            values = np.sign(values)
        tensors.append((name, shape, KIND, values))
    write(path, METADATA, tensors)
    return path


def bits(path: Path) -> float:
    with GGUF.open(path) as file:
        numbers = sum(int(np.prod(tensor.shape)) for tensor in file.tensors.values())
        return 8 * sum(tensor.nbytes for tensor in file.tensors.values()) / numbers


def test_within_the_budget(model: Path, tmp_path: Path) -> None:
    for target in (4.8, 6.0, 7.0, 12.0):
        made = llamina.auto_quantize(model, tmp_path / "out.gguf", target, overwrite=True)
        assert made.bits_per_weight == pytest.approx(bits(made.path)) and target - 2 < made.bits_per_weight <= target
    assert not any(choose_types(model, 32).errors.values()), "nothing is lost that need not be"
    with pytest.raises(RequestError, match=r"the target is too small: at least \d\.\d\d are needed"):
        llamina.auto_quantize(model, tmp_path / "none.gguf", 1.5)
    assert not (tmp_path / "none.gguf").exists()


def test_progress(model: Path, tmp_path: Path) -> None:
    """Of measuring, then of writing."""
    told: list[tuple[str, int, int]] = []
    made = llamina.auto_quantize(model, tmp_path / "out.gguf", 6, progress=lambda *step: told.append(step))
    measured = [name for name, _, _ in told].index("all tensors")
    assert {name for name, _, _ in told[measured + 1 :]} == {"out.gguf"}
    assert told[-1] == ("out.gguf", made.after, made.after)


def test_hard_tensors_and_sensitive_ones_get_more(model: Path) -> None:
    chosen = choose_types(model, 5.0)
    size = {name: kind.nbytes / kind.block for name, kind in chosen.types.items()}
    assert size["blk.1.attn_v.weight"] < size["blk.0.attn_v.weight"]
    assert chosen.errors["blk.1.attn_v.weight"] < 1e-4 and "output_norm.weight" not in chosen.types
    even = choose_types(model, 5.0, sensitivities={})
    assert even.errors["token_embd.weight"] > chosen.errors["token_embd.weight"], "which is the output matrix as well"
    told = choose_types(model, 5.0, sensitivities={"blk.0.attn_q.weight": 1e3})
    assert (
        told.types["blk.0.attn_q.weight"].nbytes / told.types["blk.0.attn_q.weight"].block > size["blk.0.attn_q.weight"]
    )


def test_importances_allow_and_weigh(model: Path) -> None:
    """Types of two bits are there with importances only; errors of columns without any count for nothing."""
    few = {"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"}
    assert not {kind.name for kind in choose_types(model, 4.8).types.values()} & few
    sums = {f"blk.{i}.attn_{k}.weight": np.ones((1, 256), np.float32) for i in range(2) for k in ("q", "v")}
    sums["blk.0.ffn_down_exps.weight"] = np.ones((2, 96), np.float32)
    counts = {name: np.ones(len(x), np.float32) for name, x in sums.items()}
    least = choose_types(model, 2.8, imatrix=Imatrix(sums, counts))
    assert {kind.name for kind in least.types.values()} & few
    sums["blk.0.attn_q.weight"] = np.full((1, 256), 0.01, np.float32)
    sums["blk.0.attn_q.weight"][:, 0] = 1
    assert choose_types(model, 4.8, imatrix=Imatrix(sums, counts)).errors["blk.0.attn_q.weight"] != pytest.approx(
        choose_types(model, 4.8).errors["blk.0.attn_q.weight"], rel=0.01
    )


def test_types_that_are_asked_for(model: Path, tmp_path: Path) -> None:
    chosen = choose_types(model, 8.0, types=["q4_0", "q8_0"], overrides=[("attn_v", "q5_0")])
    assert {kind.name for name, kind in chosen.types.items() if "attn_v" not in name} <= {"Q4_0", "Q8_0"}
    assert {kind.name for name, kind in chosen.types.items() if "attn_v" in name} == {"Q5_0"}
    with pytest.raises(RequestError, match="'q9' is no type to quantize to"):
        choose_types(model, 8.0, types=["q9"])
    with pytest.raises(RequestError, match="is no regular expression"):
        choose_types(model, 8.0, overrides=[("(", "q8_0")])
    made = llamina.auto_quantize(model, tmp_path / "out.gguf", 8.6, types=["q8_0"])
    assert made.type == "Q8_0"
    with pytest.raises(RequestError, match="is Q8_0 already, and quantizing again loses more"):
        llamina.auto_quantize(made.path, tmp_path / "again.gguf", 5)
