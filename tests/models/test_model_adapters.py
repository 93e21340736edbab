"""LoRA files on the golden models: against llama.cpp with the same files, and against merged weights."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from live import last_logits

import llamina
from lora_files import draw, merge, save

Files = Callable[[str], Path]
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 128, 40)]
ATTENTION = tuple(f"attn_{x}.weight" for x in ("q", "k", "v", "qkv", "output"))
DENSE = tuple(f"ffn_{x}.weight" for x in ("gate", "up", "down", "gate_inp"))
EXPERTS = tuple(f"ffn_{x}_{y}.weight" for x in ("gate", "up", "down") for y in ("exps", "shexp"))
MODELS = {
    "llama-dense": (*ATTENTION, *DENSE, "token_embd.weight", "output.weight"),
    "qwen3moe-moe": (*ATTENTION, "ffn_gate_inp.weight", *EXPERTS, "token_embd.weight"),
    "gpt2-dense": (*ATTENTION, *DENSE),
    "gemma3-dense": (*ATTENTION, *DENSE),
    "deepseek2-moe": ("attn_output.weight", *DENSE, *EXPERTS),  # the rest llama.cpp leaves as it is, whatever is loaded
    "granitehybrid-dense": (*ATTENTION, *DENSE, "ssm_in.weight", "ssm_out.weight"),
}


def nmse(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> float:
    return float(np.sum(np.square(got - want)) / np.sum(np.square(want)))


def matrices(path: Path, endings: tuple[str, ...]) -> list[str]:
    from llamina.gguf import GGUF

    with GGUF.open(path) as model:
        return [name for name in model.tensors if name.endswith(endings)]


@pytest.mark.parametrize("name", MODELS)
def test_stacked_adapters_are_llama_cpps_and_the_merged_weights(name: str, files: Files, tmp_path: Path) -> None:
    path, architecture = files(name), name.rpartition("-")[0]
    names = matrices(path, MODELS[name])
    first = draw(path, names, 5, 1)
    second = draw(path, names[1::2], 8, 2)
    one = save(tmp_path / "one.gguf", architecture, first, alpha=10.0)
    two = save(tmp_path / "two.gguf", architecture, second, kind="F16")
    rounded = {n: tuple(x.astype(np.float16).astype(np.float32) for x in pair) for n, pair in second.items()}
    merged = merge(path, tmp_path / "merged.gguf", [(first, 0.8 * 10.0 / 5), (rounded, -0.5)])  # type: ignore[list-item]
    with llamina.load(merged, threads=1, kv_type="f32") as engine:
        want = engine.logits(TOKENS)
    with llamina.load(path, threads=2, kv_type="f32") as engine:
        plain = engine.logits(TOKENS)
        engine.load_adapter(one)
        engine.load_adapter(two)
        got = engine.logits(TOKENS, {"one": 0.8, "two": -0.5})
        assert np.array_equal(engine.logits(TOKENS), plain)
    assert nmse(got, want) < 1e-7
    assert nmse(got, plain) > 1e-3, "adapters that do little prove little"
    llama_cpp = last_logits(path, TOKENS, 256, [(one, 0.8), (two, -0.5)])
    assert nmse(got[-1], llama_cpp) < 1e-5
