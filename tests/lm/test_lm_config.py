"""Configs: presets, what must fit together, config.json."""

from dataclasses import replace
from typing import Any

import pytest

from llamina.errors import RequestError, UnsupportedModel
from llamina.lm import GptConfig, LlamaConfig, ModelWeights

SIZES = {  # weights, as their makers count them
    GptConfig.gpt2_small: 124_439_808,
    GptConfig.gpt2_medium: 354_823_168,
    GptConfig.gpt2_large: 774_030_080,
    GptConfig.gpt2_xl: 1_557_611_200,
    LlamaConfig.llama2_7b: 6_738_415_616,
    LlamaConfig.llama2_13b: 13_015_864_320,
    LlamaConfig.llama3_8b: 8_030_261_248,
    LlamaConfig.mistral_7b: 7_241_732_096,
}


@pytest.mark.parametrize("preset", SIZES, ids=lambda preset: preset.__name__)
def test_presets_have_the_published_sizes(preset: Any) -> None:
    assert preset().n_params == SIZES[preset]


def test_what_follows_from_a_config() -> None:
    assert GptConfig.gpt2_xl().head_dim == 64
    assert LlamaConfig.llama3_8b().head_dim == 128 and LlamaConfig.llama3_8b().gqa_factor == 4
    assert LlamaConfig.phi2().head_dim == 80 and LlamaConfig.tiny().gqa_factor == 2
    tiny = LlamaConfig.tiny()
    assert ModelWeights.zeros(tiny).n_params == tiny.n_params
    tied = replace(tiny, tie_word_embeddings=True)
    assert tiny.n_params - tied.n_params == tiny.vocab_size * tiny.hidden_dim


@pytest.mark.parametrize("config", [GptConfig.gpt2_small(), LlamaConfig.llama3_8b()], ids=["gpt2", "llama"])
def test_json_and_back(config: Any) -> None:
    values = config.to_json()
    again = type(config).from_json(values)
    assert again.to_json() == values
    assert replace(again, others={}) == config


def test_further_keys_are_kept() -> None:
    values = LlamaConfig.tiny().to_json()
    values |= {"head_dim": 6, "bos_token_id": 1, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    config = LlamaConfig.from_json(values)
    assert config.head_dim == 6 and config.shapes()["model.layers.0.self_attn.q_proj.weight"] == (24, 8)
    assert config.to_json()["bos_token_id"] == 1
    assert config.to_json()["rope_parameters"] == {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(GptConfig.tiny(), n_heads=3), "n_heads is 3 and n_embd is 8: n_heads must divide n_embd"),
        (lambda: replace(GptConfig.tiny(), n_layers=0), "n_layers is 0: it must be a whole number of at least 1"),
        (lambda: replace(LlamaConfig.tiny(), n_kv_heads=3), "n_kv_heads must divide n_heads"),
        (lambda: replace(LlamaConfig.tiny(), rope_theta=0.0), "rope_theta is 0.0: it must be a number above 0"),
        (lambda: replace(LlamaConfig.tiny(), hidden_dim=4), "a head has 1 numbers: it must be an even number"),
    ],
)
def test_what_does_not_fit_together(make: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        make()


def test_a_sliding_window_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="sliding_window is 4096: a LlamaConfig has none"):
        LlamaConfig.from_json({"model_type": "mistral", "sliding_window": 4096})
