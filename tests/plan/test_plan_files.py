"""Files that do not hold what their architecture needs are refused before anything runs, and told why."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_files import ABSENT, HIDDEN, VOCAB, WIDTH, shapes, write_llama

import llamina
from llamina.errors import LlaminaError, ModelFileError, UnsupportedModel
from llamina.models import architectures


def test_the_file_itself_is_fine(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf")
    with llamina.load(path, backend="reference") as exact, llamina.load(path) as engine:
        tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3]
        expected = exact.logits(tokens)
        error = np.square(engine.logits(tokens) - expected).sum() / np.square(expected).sum()
        assert error <= 1e-6


def test_tied_output(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tied.gguf", tensors={"output.weight": ABSENT})
    with llamina.load(path, backend="reference") as engine:
        assert engine.runner.plan.steps[-1].name == "token_embd" and engine.runner.plan.vocab == VOCAB


TIED = ("token_embd.weight", "output.weight")  # either stands in for the other


@pytest.mark.parametrize("name", [n for n in shapes() if n not in TIED and "ffn_gate" not in n])
def test_a_missing_tensor(tmp_path: Path, name: str) -> None:
    path = write_llama(tmp_path / "holey.gguf", tensors={name: ABSENT})
    with pytest.raises(UnsupportedModel, match=name.removesuffix(".weight")):
        llamina.load(path, backend="reference")


def test_neither_embedding_nor_output(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "holey.gguf", tensors=dict.fromkeys(TIED, ABSENT))
    with pytest.raises(UnsupportedModel, match="output"):
        llamina.load(path, backend="reference")


def test_a_missing_gate(tmp_path: Path) -> None:
    """Some files hold gate and up as one matrix, so what is noticed is that `ffn_down` does not fit."""
    path = write_llama(tmp_path / "holey.gguf", tensors={"blk.1.ffn_gate.weight": ABSENT})
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.ffn_"):
        llamina.load(path, backend="reference")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.attn_q.weight", (WIDTH, WIDTH + 1)),
        ("blk.1.attn_q.weight", (WIDTH - 8, WIDTH)),
        ("blk.1.attn_k.weight", (9, WIDTH)),
        ("blk.1.attn_v.weight", (3 * 8, WIDTH)),
        ("blk.0.attn_output.weight", (WIDTH, 2 * WIDTH)),
        ("blk.0.attn_output.weight", (2 * WIDTH, WIDTH)),
        ("blk.0.attn_norm.weight", (WIDTH + 1,)),
        ("blk.0.attn_norm.weight", (1,)),
        ("blk.1.ffn_gate.weight", (HIDDEN - 1, WIDTH)),
        ("blk.1.ffn_up.weight", (HIDDEN, 1)),
        ("blk.1.ffn_down.weight", (WIDTH, HIDDEN, 1)),
        ("blk.1.ffn_down.weight", (HIDDEN,)),
        ("output_norm.weight", (2 * WIDTH,)),
        ("output.weight", (VOCAB, WIDTH // 2)),
        ("output.weight", (WIDTH,)),
        ("token_embd.weight", (VOCAB,)),
        ("token_embd.weight", (VOCAB, WIDTH // 2)),
        ("token_embd.weight", (2, VOCAB, WIDTH)),
    ],
    ids=str,
)
def test_a_misshapen_tensor(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    path = write_llama(tmp_path / "bent.gguf", tensors={name: shape})
    with pytest.raises(LlaminaError, match=r"\d"):
        llamina.load(path, backend="reference")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("block_count", 0, ModelFileError),
        ("block_count", ABSENT, ModelFileError),
        ("block_count", 1 << 24, UnsupportedModel),  # blk.2 is not there
        ("block_count", 1 << 31, ModelFileError),
        ("block_count", -1, ModelFileError),
        ("block_count", "two", ModelFileError),
        ("block_count", 1.5, ModelFileError),
        ("embedding_length", 0, ModelFileError),
        ("embedding_length", ABSENT, ModelFileError),
        ("embedding_length", 1 << 40, ModelFileError),
        ("context_length", 0, ModelFileError),
        ("context_length", 1 << 50, ModelFileError),
        ("context_length", math.inf, ModelFileError),
        ("context_length", math.nan, ModelFileError),
        ("attention.head_count", 0, ModelFileError),
        ("attention.head_count", 3, LlaminaError),
        ("attention.head_count", 1 << 20, LlaminaError),
        ("attention.head_count", 1 << 33, ModelFileError),
        ("attention.head_count_kv", 0, ModelFileError),
        ("attention.head_count_kv", 3, LlaminaError),
        ("attention.head_count_kv", 8, LlaminaError),
        ("attention.head_count_kv", np.array([2], np.int32), ModelFileError),  # two blocks, one entry
        ("attention.head_count_kv", np.array([2, 0], np.int32), ModelFileError),
        ("attention.layer_norm_rms_epsilon", math.nan, ModelFileError),
        ("attention.layer_norm_rms_epsilon", math.inf, ModelFileError),
        ("attention.layer_norm_rms_epsilon", "small", ModelFileError),
        ("attention.layer_norm_rms_epsilon", -1.0, ModelFileError),
        ("attention.key_length", 0, ModelFileError),
        ("attention.scale", math.nan, ModelFileError),
        ("rope.dimension_count", 0, ModelFileError),
        ("rope.dimension_count", 9, LlaminaError),
        ("rope.dimension_count", 7, LlaminaError),
        ("rope.freq_base", math.nan, ModelFileError),
        ("rope.freq_base", 0.0, ModelFileError),
        ("rope.freq_base", -10000.0, ModelFileError),
        ("rope.scaling.factor", math.inf, ModelFileError),
        ("expert_count", -4, ModelFileError),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else str(v),
)
def test_bad_hyperparameters(tmp_path: Path, key: str, value: Any, error: type[Exception], backend: str) -> None:
    path = write_llama(tmp_path / "odd.gguf", {f"llama.{key}": value})
    with pytest.raises(error) as caught:
        llamina.load(path, backend=backend)
    if error is ModelFileError:
        assert key in str(caught.value), "the message names the key"


def test_the_message_says_what_is_expected(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "odd.gguf", {"llama.attention.head_count": 0})
    with pytest.raises(ModelFileError, match=r"llama.attention.head_count is 0: it must be a whole number from 1 to"):
        llamina.load(path)


@pytest.mark.parametrize(
    ("name", "near"),
    [("lama", "llama"), ("qwen4", "qwen2"), ("gemma-3", "gemma3"), ("startcoder", "starcoder")],
)
def test_an_unknown_architecture(tmp_path: Path, name: str, near: str) -> None:
    path = write_llama(tmp_path / "new.gguf", {"general.architecture": name})
    with pytest.raises(UnsupportedModel, match=f"{name}.*nearest of the .* known are .*{near}"):
        llamina.load(path)


def test_an_architecture_like_no_other(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "new.gguf", {"general.architecture": "xyzzy"})
    with pytest.raises(UnsupportedModel, match=f"xyzzy.*the nearest of the {len(architectures())} known are"):
        llamina.load(path)


@pytest.mark.parametrize("name", [ABSENT, 7, "", "../llama", "config", "blocks", "decoder", "__init__", "os"], ids=str)
def test_what_is_no_architecture(tmp_path: Path, name: object) -> None:
    path = write_llama(tmp_path / "new.gguf", {"general.architecture": name})
    with pytest.raises(UnsupportedModel, match="architecture"):
        llamina.load(path)


def test_a_file_without_a_vocabulary(tmp_path: Path) -> None:
    """It has logits; only text is out of reach."""
    with llamina.load(write_llama(tmp_path / "mute.gguf"), threads=1) as engine:
        assert engine.logits([1, 2, 3]).shape == (3, VOCAB)
        with pytest.raises(LlaminaError):
            engine.generate("hello")
        with pytest.raises(LlaminaError):
            engine.generate([1, 2, 3])
        assert not engine.core.waiting and not engine.core.running
