"""`llamina export-lora`: adapters merged into a model, which says what it says with them loaded beside it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import llamina
from llamina.errors import RequestError, UnsupportedModel
from llamina.files import compare, export_lora
from llamina.gguf import GGUF, open_model
from llamina.quant import decode
from llamina.quantization import quantize
from lora_files import Pairs, draw, merge, save

Invoke = Callable[..., Result]
NAMES = [f"blk.{layer}.{part}.weight" for layer in range(5) for part in ("attn_q", "attn_v", "ffn_down")]
PROMPT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."


@pytest.fixture(scope="module")
def pairs(stories: Path) -> dict[str, Pairs]:
    """Adapters of different ranks, beside different matrices."""
    wide = [*NAMES, "token_embd.weight", "output.weight"]
    return {"one": draw(stories, NAMES, 4, 1), "two": draw(stories, wide, 9, 2)}


@pytest.fixture(scope="module")
def adapters(pairs: dict[str, Pairs], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: save(folder / f"{name}.gguf", "llama", found, alpha=8.0) for name, found in pairs.items()}


def values(path: Path, name: str) -> np.ndarray:
    with GGUF.open(path) as file:
        tensor = file.tensors[name]
        return decode(tensor.data, tensor.type, tensor.shape)


def test_the_sum_of_products(
    invoke: Invoke, stories: Path, pairs: dict[str, Pairs], adapters: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "merged.gguf"
    scaled = f"{adapters['two']}=-0.7"
    result = invoke("export-lora", "-m", stories, "--lora", adapters["one"], "--lora", scaled, "-o", out, "--json")
    told = json.loads(result.stdout)
    assert told["path"] == str(out) and told["type"] == "F16" and set(told["merged"]) == set(pairs["two"])
    expected = merge(stories, tmp_path / "expected.gguf", [(pairs["one"], 8 / 4), (pairs["two"], -0.7 * 8 / 9)])
    with GGUF.open(out) as one, GGUF.open(expected) as other:
        found = compare(one, other, errors=True)
        assert {error.name for error in found.errors} <= set(pairs["two"])
        assert max(error.relative for error in found.errors) < 1e-6
        assert one.metadata["general.file_type"] == 1 and not found.types, "F32 stays F32"


def test_the_engine_with_adapters_beside_it(
    stories: Path, pairs: dict[str, Pairs], adapters: dict[str, Path], tmp_path: Path
) -> None:
    use = {str(adapters["one"]): 0.5, str(adapters["two"]): 1.5}
    made = export_lora(stories, use, tmp_path / "merged.gguf")
    with llamina.load(stories, threads=1) as beside, llamina.load(made.path, threads=1) as merged:
        names = {beside.load_adapter(path): scale for path, scale in use.items()}
        tokens = beside.encode(PROMPT)
        want, got, plain = beside.logits(tokens, names), merged.logits(tokens), beside.logits(tokens)
    assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()
    assert np.abs(plain - want).max() > 0.1 * np.abs(want).max(), "adapters that change nothing prove nothing"


def test_a_model_in_f16_and_a_quantized_one(stories: Path, adapters: dict[str, Path], tmp_path: Path) -> None:
    """Merged matrices become F16; all other tensors have the bytes that they had."""
    for kind in ("F16", "Q8_0"):
        base = quantize(stories, tmp_path / f"{kind}.gguf", kind).path
        made = export_lora(base, [adapters["one"]], tmp_path / f"{kind}-merged.gguf")
        with GGUF.open(base) as old, GGUF.open(made.path) as new:
            assert {new.tensors[name].type.name for name in made.merged} == {"F16"}
            for name in set(old.tensors) - set(made.merged):
                assert new.tensors[name].type == old.tensors[name].type
                assert np.array_equal(new.tensors[name].data, old.tensors[name].data)
        name = "blk.1.ffn_down.weight"
        change = values(made.path, name) - values(base, name)
        wanted = values(export_lora(stories, [adapters["one"]], tmp_path / f"{kind}-32.gguf").path, name)
        assert np.abs(change - (wanted - values(stories, name))).max() < 2e-3 * np.abs(wanted).max()


def test_other_types(invoke: Invoke, stories: Path, adapters: dict[str, Path], tmp_path: Path) -> None:
    """The same bytes as by merging in float32 and quantizing."""
    merged = export_lora(stories, [adapters["one"]], tmp_path / "merged.gguf").path
    for kind in ("q8_0", "bf16", "q4_k_m"):
        expected = quantize(merged, tmp_path / f"{kind}-twice.gguf", kind).path
        out = tmp_path / f"{kind}.gguf"
        result = invoke("export-lora", "-m", stories, "--lora", adapters["one"], "-o", out, "--type", kind)
        assert result.exit_code == 0 and result.stdout == f"{out}\n", result.stderr
        assert f"merged into {len(NAMES)} matrices: {kind.upper()}" in result.stderr
        with GGUF.open(out) as one, GGUF.open(expected) as other:
            assert not compare(one, other)
    result = invoke(
        "export-lora",
        "-m",
        tmp_path / "q8_0.gguf",
        "--lora",
        adapters["one"],
        "-o",
        tmp_path / "x.gguf",
        "--type",
        "q5_1",
    )
    assert result.exit_code == 2 and "is Q8_0 already" in result.stderr


def test_experts(files: Callable[[str], Path], tmp_path: Path) -> None:
    """A pair for each expert."""
    base = files("qwen3moe-moe")
    with GGUF.open(base) as file:
        names = [name for name in file.tensors if name.startswith("blk.0.ffn_") and name.endswith("_exps.weight")]
        assert names and all(len(file.tensors[name].shape) == 3 for name in names)
        architecture = str(file.metadata["general.architecture"])
    pairs = draw(base, names, 3, 7)
    adapter = save(tmp_path / "a.gguf", architecture, pairs)
    made = export_lora(base, {str(adapter): 2.0}, tmp_path / "m.gguf", type="f32")
    expected = merge(base, tmp_path / "e.gguf", [(pairs, 2.0)])
    for name in names:
        wanted = values(expected, name)
        assert np.abs(values(made.path, name) - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_shards(stories: Path, adapters: dict[str, Path], tmp_path: Path) -> None:
    from llamina.files import split

    shards = split(stories, tmp_path / "s", max_tensors=20)
    made = export_lora(shards[1].path, [adapters["one"]], tmp_path / "m.gguf")
    whole = export_lora(stories, [adapters["one"]], tmp_path / "w.gguf")
    with open_model(made.path) as one, open_model(whole.path) as other:
        assert not compare(one, other)


def test_tied_embeddings_are_noted(stories: Path, tmp_path: Path, pairs: dict[str, Pairs]) -> None:
    from llamina.gguf import write

    with GGUF.open(stories) as file:
        kept = [tensor for name, tensor in file.tensors.items() if name != "output.weight"]
        write(tmp_path / "tied.gguf", file.metadata, kept, metadata_types=file.metadata_types)
    adapter = save(tmp_path / "a.gguf", "llama", {"token_embd.weight": pairs["two"]["token_embd.weight"]})
    (note,) = export_lora(tmp_path / "tied.gguf", [adapter], tmp_path / "m.gguf").notes
    assert note.startswith("token_embd.weight is the output matrix too")


def test_refusals(
    invoke: Invoke, stories: Path, pairs: dict[str, Pairs], adapters: dict[str, Path], tmp_path: Path
) -> None:
    out, one = tmp_path / "out.gguf", pairs["one"]
    first = NAMES[0]
    wrong = {
        "other": (
            save(tmp_path / "1.gguf", "qwen2", one),
            "adapts a model of architecture qwen2, and this one is llama",
        ),
        "absent": (save(tmp_path / "2.gguf", "llama", {"blk.9.x.weight": one[first]}), "which .* does not have"),
        "narrow": (save(tmp_path / "3.gguf", "llama", {"blk.0.ffn_up.weight": one[first]}), "which do not fit its"),
        "vector": (save(tmp_path / "4.gguf", "llama", {"output_norm.weight": one[first]}), "which do not fit its"),
        "alora": (
            save(tmp_path / "5.gguf", "llama", one, adapter__alora__invocation_tokens=[5, 6]),
            "acts only after its invocation tokens",
        ),
        "model": (stories, "is no LoRA adapter"),
    }
    for path, message in wrong.values():
        with pytest.raises(UnsupportedModel, match=message):
            export_lora(stories, [path], out)
    with pytest.raises(RequestError, match="there is no adapter to merge"):
        export_lora(stories, [], out)
    with pytest.raises(RequestError, match="would be replaced by itself"):
        export_lora(stories, [adapters["one"]], adapters["one"], overwrite=True)
    large = {first: (one[first][0] * 1e4, one[first][1] * 1e4)}
    base = quantize(stories, tmp_path / "f16.gguf", "F16").path
    with pytest.raises(RequestError, match="which F16 cannot: choose bf16 or f32"):
        export_lora(base, [save(tmp_path / "6.gguf", "llama", large)], out)
    assert not out.exists()
    assert invoke("export-lora", "-m", stories, "-o", out).exit_code == 2
    assert invoke("export-lora", "-m", "nobody", "--lora", adapters["one"], "-o", out).exit_code == 3
    out.write_bytes(b"precious")
    result = invoke("export-lora", "-m", stories, "--lora", adapters["one"], "-o", out)
    assert result.exit_code == 2 and "exists: choose another name" in result.stderr
