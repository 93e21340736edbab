"""GPT-2 and Llama of `llamina.lm`: the logits of `transformers`, of the engine, and of the KV cache's steps."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import llamina
from llamina import lm
from llamina.convert import convert
from llamina.engine.runner.load import weights_of
from llamina.errors import CapacityError, ContextTooLong, ModelFileError, RequestError, UnsupportedModel
from llamina.models import build
from llamina.plan import record, show
from skips import import_peer, skip

CONVERT = Path(__file__).parents[1] / "convert"
TRUTH = dict(np.load(CONVERT / "logits.npz"))
STORED = {"gpt2": lm.Gpt2Model, "llama": lm.LlamaModel, "llama-biases": lm.LlamaModel, "mistral": lm.LlamaModel}
TINY: list[tuple[Any, Any]] = [(lm.Gpt2Model, lm.GptConfig.tiny()), (lm.LlamaModel, lm.LlamaConfig.tiny())]
TOKENS = [3, 14, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6]
both = pytest.mark.parametrize(("kind", "config"), TINY, ids=["gpt2", "llama"])
F32 = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folders whose logits `transformers` computed for the tests of `convert`."""
    pytest.MonkeyPatch().syspath_prepend(str(CONVERT))
    import convert_folders

    top = tmp_path_factory.mktemp("folders")
    return {name: convert_folders.folder(top / name, name) for name in STORED}, convert_folders.TOKENS


def nmse(got: F32, want: F32) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


def drawn(kind: Any, config: Any, **options: Any) -> Any:
    return kind(config, lm.ModelWeights.random(config, seed=7, deviation=0.5), **{"backend": "reference"} | options)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", STORED)
def test_logits_are_those_of_transformers(name: str, backend: str, folders: Any) -> None:
    paths, tokens = folders
    with STORED[name].read(paths[name], backend=backend, context=64) as model:
        assert nmse(model.forward(tokens), TRUTH[name]) < 1e-10
        assert model.tokenizer is not None and model.tokenizer.vocab_size == model.config.vocab_size


@both
def test_transformers_reads_what_is_saved(kind: Any, config: Any, tmp_path: Path) -> None:
    torch, transformers = import_peer("torch"), import_peer("transformers")
    model = drawn(kind, config)
    model.save(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        want = theirs(torch.tensor([TOKENS])).logits[0].numpy()
    assert nmse(model.forward(TOKENS), want) < 1e-10
    assert model.n_params == sum(p.numel() for p in theirs.parameters())


@both
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_the_engine_computes_the_same(kind: Any, config: Any, backend: str, tmp_path: Path) -> None:
    tokenizer = lm.BpeBuilder().build()
    config = type(config).from_json({**config.to_json(), "vocab_size": tokenizer.vocab_size})
    with drawn(kind, config, backend=backend) as model:
        mine = model.forward(TOKENS)
        model.save(tmp_path / "tiny")
        tokenizer.save(tmp_path / "tiny")
        file = convert(tmp_path / "tiny", tmp_path / "tiny.gguf", type="f32").path
        with llamina.load(file, backend=backend, kv_type="f32", context=32) as engine:
            assert np.array_equal(engine.logits(TOKENS), mine)
            assert engine.tokenizer.encode("ab") == tokenizer.encode("ab")


@both
def test_the_engine_loads_it_from_memory(kind: Any, config: Any) -> None:
    model = drawn(kind, config)
    with llamina.load(model.file, backend="reference", kv_type="f32", context=32) as engine:
        assert np.array_equal(engine.logits(TOKENS), model.forward(TOKENS))


@both
def test_plans_are_those_of_the_engine(kind: Any, config: Any) -> None:
    """There is no second model: layer by layer, the same steps are written down."""
    model = drawn(kind, config)
    theirs = record(build(model.file.metadata, weights_of(model.file), config.context).forward)
    assert list(show(model.plan)) == list(show(theirs))


@both
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_steps_with_a_cache_equal_the_whole_prompt(kind: Any, config: Any, backend: str) -> None:
    with drawn(kind, config, backend=backend) as model, model.new_cache() as past:
        whole = model.forward(TOKENS)
        steps = [model.forward(TOKENS[:7], past), *(model.forward([token], past) for token in TOKENS[7:])]
        assert past.past_len == len(TOKENS)
        if backend == "cpu":
            assert np.array_equal(np.concatenate(steps), whole)
        else:
            assert nmse(np.concatenate(steps), whole) < 1e-10


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a GPU's arithmetic does not warn
def test_kernels_of_the_gpu() -> None:
    """By Triton's interpreter, so only a few tokens: a prompt, and a step with its KV cache."""
    if find_spec("triton") is None:
        skip("peer", "triton is not installed")
    config = lm.LlamaConfig(1, 2, 1, 8, 12, 16, 16)
    want = drawn(lm.LlamaModel, config).forward([3, 1, 4])
    with drawn(lm.LlamaModel, config, backend="interpreter") as model, model.new_cache() as past:
        got = [model.forward([3, 1], past), model.forward([4], past)]
        assert nmse(np.concatenate(got), want) < 1e-10
        assert past.layer(0).keys.shape == (1, 3, 4)


@both
def test_backends_agree(kind: Any, config: Any) -> None:
    with drawn(kind, config) as one, drawn(kind, config, backend="cpu", threads=1) as other:
        assert nmse(other.forward(TOKENS), one.forward(TOKENS)) < 1e-10


def test_prompts_longer_than_a_step() -> None:
    config = lm.LlamaConfig(1, 2, 1, 16, 16, 512, 16)
    tokens = np.random.default_rng(0).integers(0, 16, 300).tolist()
    with drawn(lm.LlamaModel, config) as model, model.new_cache() as past:
        whole = model.forward(tokens)
        assert whole.shape == (300, 16)
        steps = [model.forward(tokens[:200], past), model.forward(tokens[200:], past)]
        assert nmse(np.concatenate(steps), whole) < 1e-10


def test_a_cache_forks_and_goes_back() -> None:
    model = drawn(*TINY[1], sequences=3)
    with model.new_cache() as past:
        model.forward(TOKENS[:18], past)
        keys = past.layer(1).keys
        assert keys.shape == (2, 18, 2)
        with past.fork() as twin:
            other = model.forward([1, 2], twin)
            assert past.past_len == 18 and np.array_equal(past.layer(1).keys, keys)
            assert np.array_equal(twin.layer(1).keys[:, :18], keys)
            twin.truncate(18)
            assert nmse(model.forward(TOKENS[18:], twin), model.forward(TOKENS[18:], past)) < 1e-12
        past.truncate(18)
        assert nmse(model.forward([1, 2], past), other) < 1e-12
        past.truncate(5)
        assert past.layer(0).total_len == 5
        for action, message in [
            (lambda: past.truncate(6), "length is 6: it must be from 0 to 5"),
            (lambda: past.layer(2), r"layer 2 has no KV cache: those that have one are \[0, 1\]"),
        ]:
            with pytest.raises(RequestError, match=message):
                action()


def test_generation() -> None:
    model = drawn(*TINY[1])
    greedy = list(model.generate([3, 1], 8, temperature=0))
    known = [3, 1]
    for token in greedy:
        assert token == model.next_token(known)
        known.append(token)
    assert len(greedy) == 8
    assert list(model.generate([3, 1], 8, temperature=0, stop={greedy[2]})) == greedy[: greedy.index(greedy[2])]
    drawn_twice = [list(model.generate([3, 1], 8, temperature=2.0, seed=5)) for _ in range(2)]
    assert drawn_twice[0] == drawn_twice[1]
    assert len(list(model.generate([1], 100, temperature=0))) == model.context - 1
    with pytest.raises(ContextTooLong, match="the prompt has 32 tokens: with a context of 32 it must have fewer"):
        next(model.generate([1] * 32))


def test_a_layer_can_be_replaced() -> None:
    """Without its attention, a token sees itself alone."""

    class Nothing(lm.MlpFfn):
        def __call__(self, x: Any) -> Any:
            return x * 0.0

    model = drawn(*TINY[1])
    for block in model.layers:
        block.self_attn = Nothing(block.mlp.w)
    logits = model.forward([4, 2, 4])
    assert np.allclose(logits[0], logits[2], atol=1e-6) and not np.allclose(logits[0], logits[1])


def test_what_is_refused(tmp_path: Path) -> None:
    kind, config = TINY[1]
    weights = lm.ModelWeights.random(config)
    model = kind(config, weights, backend="reference", sequences=1)
    for inputs, message in [
        ([16], "a token is 16: it must be from 0 to 15"),
        ([-1, 3], "a token is -1"),
        ([], "must be one or more tokens"),
        ([0.5], "must be one or more tokens"),
    ]:
        with pytest.raises(RequestError, match=message):
            model.forward(inputs)
    with pytest.raises(ContextTooLong, match="0 tokens and 33 more do not fit the context of 32"):
        model.forward([0] * 33)
    with model.new_cache() as past:
        with pytest.raises(CapacityError, match="1 sequences have a cache: close one"):
            model.new_cache()
        with pytest.raises(CapacityError, match="close one"):
            past.fork()
        with pytest.raises(RequestError, match="that of another model"):
            drawn(kind, config).forward([1], past)
    with pytest.raises(RequestError, match="context is 33: it must be from 1 to 32"):
        kind(config, weights, context=33)
    with pytest.raises(RequestError, match="kv_type is 'q8_0': it must be f32 or f16 or bf16"):
        kind(config, weights, kv_type="q8_0").forward([1])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    with pytest.raises(UnsupportedModel, match="model_type is 'qwen3', and must be llama or mistral here"):
        kind.read(tmp_path)


@both
def test_weights_must_fit(kind: Any, config: Any, tmp_path: Path) -> None:
    weights = lm.ModelWeights.random(config)
    weights.save(tmp_path / "model.safetensors")
    again = lm.ModelWeights.read(tmp_path / "model.safetensors")
    assert again.keys() == weights.keys() == config.shapes().keys()
    assert all(np.array_equal(again[name], weights[name]) for name in weights)
    assert again.n_params == config.n_params
    name = next(iter(config.shapes()))
    again.insert(name, np.zeros((2, 2)))
    with pytest.raises(ModelFileError, match=r"is \[2, 2\]: by the config it must be"):
        kind(config, again)
    again.insert("more.weight", np.zeros(2))
    with pytest.raises(ModelFileError, match=r"the weights have more.weight, which the config has not"):
        kind(config, again)
    del again.tensors["more.weight"], again.tensors[name]
    with pytest.raises(ModelFileError, match=r"the weights lack [\w.]+: add what is missing"):
        kind(config, again)


def test_old_files_of_gpt2() -> None:
    """They have no prefix, and masks."""
    kind, config = TINY[0]
    weights = lm.ModelWeights.random(config, deviation=0.5)
    old = lm.ModelWeights({name.removeprefix("transformer."): weights[name] for name in weights})
    old.insert("h.0.attn.bias", np.ones((1, 1, 32, 32)))
    same = [kind(config, w, backend="reference").forward(TOKENS) for w in (weights, old)]
    assert np.array_equal(*same)
