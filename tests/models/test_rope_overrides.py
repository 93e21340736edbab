"""RoPE settings in place of a file's: llama.cpp's logits with the same options."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from live import last_logits

import llamina
from golden_facts import SPECS
from llamina.errors import RequestError
from llamina.models.rope_overrides import SCALINGS

TOKENS = [int(t) for t in np.random.default_rng(1).integers(0, 128, 40)]
YARN = {
    "rope_scaling": "yarn",
    "rope_freq_base": 300.0,
    "rope_freq_scale": 0.5,
    "yarn_ext_factor": 0.75,
    "yarn_beta_fast": 8.0,
    "yarn_beta_slow": 0.5,
    "yarn_orig_ctx": 24,
}
CHANGES: dict[str, dict[str, Any]] = {
    "base": {"rope_freq_base": 500.0},
    "scale alone": {"rope_freq_scale": 0.25},
    "none": {"rope_scaling": "none"},
    "linear": {"rope_scaling": "linear", "rope_freq_scale": 0.25},
    "yarn": {"rope_scaling": "yarn", "rope_freq_scale": 0.25, "yarn_orig_ctx": 16},
    "yarn, all of it": YARN,
    "interpolated": {"rope_scaling": "yarn", "rope_freq_scale": 0.5, "yarn_ext_factor": 0.0, "yarn_attn_factor": 1.25},
}


def ours(path: Path, change: dict[str, Any]) -> npt.NDArray[np.float32]:
    with llamina.load(path, backend="reference", kv_type="f32", context=256, **change) as engine:
        logits: npt.NDArray[np.float32] = engine.logits(TOKENS)[-1]
        return logits


def theirs(path: Path, change: dict[str, Any]) -> npt.NDArray[np.float32]:
    kinds = {"rope_scaling_type": SCALINGS.index(change["rope_scaling"])} if "rope_scaling" in change else {}
    return last_logits(path, TOKENS, 256, **{k: v for k, v in change.items() if k != "rope_scaling"}, **kinds)


def error(found: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """The normalized square error, of what is finite."""
    said = np.isfinite(expected)
    return float(np.sum(np.square(found[said] - expected[said])) / np.sum(np.square(expected[said])))


@pytest.mark.parametrize("name", ["llama-dense", "deepseek2-moe", "gemma3-dense"])
@pytest.mark.parametrize("label", CHANGES)
def test_logits_are_llama_cpps(label: str, name: str, files: Callable[[str], Path]) -> None:
    expected, plain = theirs(files(name), CHANGES[label]), theirs(files(name), {})
    assert error(ours(files(name), CHANGES[label]), expected) < 5e-6
    if label != "none":  # it makes a difference
        assert error(plain, expected) > 5e-5


WINDOWED = re.compile(
    "afmoe|cohere2|dots3|exaone|gemma|gpt-oss|granite_swa|hunyuan|laguna|llama4|maple|mellum|mimo|muse"
)
OTHERS = re.compile("cogvlm|glm4|grok|mamba2|mistral4|nanbeige|olmo2|phi3|plamo3|qwen3vl|smallthinker|spark|t5")


DEEP = {"gemma3n-shared"}  # whose 22 layers make much of F16 keys and values


@pytest.mark.parametrize(
    "name", [name for name in SPECS if (WINDOWED.match(name) or OTHERS.match(name)) and name not in DEEP]
)
def test_architectures(name: str, files: Callable[[str], Path]) -> None:
    """With all settings at once, or a refusal where there are none: those with rotations of their own."""
    try:
        found = ours(files(name), YARN)
    except RequestError as refusal:
        assert "no RoPE settings that could be overridden" in str(refusal)
    else:
        assert error(found, theirs(files(name), YARN)) < 1e-5


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"rope_scaling": "longrope"}, "rope_scaling"),
        ({"rope_freq_base": 0}, "rope_freq_base"),
        ({"rope_freq_scale": float("nan")}, "rope_freq_scale"),
        ({"rope_freq_scale": "2"}, "rope_freq_scale"),
        ({"rope_freq_scale": 0.5, "rope_scaling": "none"}, "rope_freq_scale"),
        ({"yarn_ext_factor": -1.0}, "yarn_ext_factor"),
        ({"yarn_beta_fast": 0.0}, "yarn_beta_fast"),
        ({"yarn_orig_ctx": 64.0}, "yarn_orig_ctx"),
        ({"yarn_attn_factor": 1.5, "rope_scaling": "yarn"}, "yarn_attn_factor"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, Any], param: str, files: Callable[[str], Path]) -> None:
    with pytest.raises(RequestError) as caught:
        llamina.load(files("llama-dense"), **options)
    assert caught.value.param == param
