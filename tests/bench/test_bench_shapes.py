"""Shapes of real models: as many parameters as their publishers count, and files that run."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import llamina
from llamina.bench import synthetic
from llamina.bench.shapes import SHAPES, Shape, parse_shape
from llamina.bench.synthetic import shape_file, write_shape
from llamina.engine.runner.load import weights_of
from llamina.errors import CapacityError, RequestError
from llamina.gguf import open_model
from llamina.models import build
from llamina.plan import record
from llamina.quant import decode
from skips import import_peer

PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "tinyllama-1.1b": 1_100_048_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "phi-3-mini": 3_821_079_552,
    "gpt-oss-20b": 20_914_757_184,
}
TINY = Shape("llama", 2, 256, 512, 4, 2, 64, 512, 1e4)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_parameters_that_its_publisher_counts(name: str) -> None:
    assert SHAPES[name].parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_model_that_can_be_computed(name: str) -> None:
    """Its forward pass is recorded with weights that have no data, and uses all of its tensors."""
    shape = SHAPES[name]
    types = shape.types("Q4_K_M").items()
    tensors = {tensor: SimpleNamespace(shape=shape.tensors[tensor], type=kind) for tensor, kind in types}
    weights = weights_of(SimpleNamespace(tensors=tensors), read=False)  # type: ignore[arg-type]
    plan = record(build(shape.metadata, weights).forward)
    assert plan.vocab == shape.vocab
    used = [weight for step in plan.steps for weight in step.weights]
    used += [weight.bias for weight in used if weight.bias is not None]
    assert {weight.name for weight in used} == set(tensors)


@pytest.mark.parametrize(
    ("name", "mix", "counts"),
    [  # of the files that are published under these names
        ("gemma-3-270m", "Q4_K_M", {"F32": 109, "Q5_0": 81, "Q4_K": 27, "Q8_0": 10, "Q6_K": 9}),
        ("tinyllama-1.1b", "IQ2_XXS", {"IQ2_XXS": 130, "F32": 45, "Q4_K": 22, "Q2_K": 3, "Q5_K": 1}),
        ("smollm2-135m", "Q4_1", {"Q4_1": 210, "F32": 61, "Q8_0": 1}),
    ],
)
def test_types_are_mixed_as_in_published_files(name: str, mix: str, counts: dict[str, int]) -> None:
    assert Counter(kind.name for kind in SHAPES[name].types(mix).values()) == counts


def test_names_of_shapes() -> None:
    assert parse_shape("llama-3-8b:q5_k_m") == ("llama-3-8b", "Q5_K_M")
    assert parse_shape("TinyLlama") == ("tinyllama-1.1b", "Q4_K_M")
    with pytest.raises(RequestError, match="shape is 'llama-9': must be one of smollm2-135m, "):
        parse_shape("llama-9")
    with pytest.raises(RequestError, match="type is 'Q9'"):
        parse_shape("llama-3-8b:Q9")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shapes") / "tiny.gguf"
    write_shape(path, TINY, "Q4_K_M")
    return path


def test_a_file_of_random_weights(tiny: Path) -> None:
    file = open_model(tiny)
    assert {name: tensor.shape for name, tensor in file.tensors.items()} == TINY.tensors
    assert file.metadata["general.file_type"] == 15 and len(file.metadata["tokenizer.ggml.tokens"]) == 512
    matrix = file.tensors["blk.1.ffn_down.weight"]
    values = decode(matrix.data, matrix.type, matrix.shape)
    assert np.std(values) == pytest.approx(512**-0.5, rel=0.1)
    assert len(np.unique(values, axis=0)) > 200  # rows are not all the same
    assert (decode(file.tensors["output_norm.weight"].data, "F32") == 1).all()


def test_it_runs(tiny: Path) -> None:
    with llamina.load(tiny, threads=1, context=64) as engine:
        assert engine.encode("in the") == engine.encode("in") + engine.encode(" the")
        scores = engine.token_scores("in the tin").logprobs
        assert np.isfinite(scores).all() and -12 < np.mean(scores) < -3
        assert len(engine.generate("in", max_tokens=5, ignore_eos=True).tokens) == 5


def test_llama_cpp_reads_it(tiny: Path) -> None:
    xllamacpp = import_peer("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.verbosity = str(tiny), 64, -1
    params.cpuparams.n_threads = 1
    answer = xllamacpp.Server(params).handle_completions({"prompt": "in the", "n_predict": 3, "ignore_eos": True})
    assert answer["timings"]["predicted_n"] == 3


def test_experts_have_matrices_of_their_own(tmp_path: Path) -> None:
    shape = replace(TINY, architecture="gpt-oss", ffn=256, experts=4, experts_used=2)
    shape = replace(shape, more={"attention.sliding_window": 16}, layers=1)
    write_shape(tmp_path / "experts.gguf", shape, "F32")
    with llamina.load(tmp_path / "experts.gguf", threads=1, context=64) as engine:
        assert np.isfinite(engine.token_scores("in the tin").logprobs).all()


def test_a_file_is_written_once_and_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "cache_dir", lambda: tmp_path)
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    told: list[tuple[str, int, int]] = []
    path = shape_file("tiny:Q8_0", lambda *step: told.append(step))
    assert path == tmp_path / "shapes" / "tiny-Q8_0-v2.gguf" and told[-1][1] == told[-1][2]
    written = path.stat().st_mtime_ns
    assert shape_file("tiny:q8_0") == path and path.stat().st_mtime_ns == written

    def fail(*step: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shape_file("tiny:Q4_0", fail)
    assert not list(path.parent.glob("*Q4_0*.part")) and not list(path.parent.glob("*Q4_0*.gguf"))
    left = path.parent / ".tiny-Q4_0-v2.gguf.0123.part"  # of a process that was killed
    left.touch()
    assert shape_file("tiny:Q4_0").exists() and not left.exists()


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**9))
    with pytest.raises(CapacityError, match=r"takes 4\.9\d GB and .* has 1 GB free: make room, or .*LLAMINA_CACHE"):
        write_shape(tmp_path / "big.gguf", SHAPES["llama-3-8b"], "Q4_K_M")
    assert not list(tmp_path.iterdir())
