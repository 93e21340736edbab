"""`llamina verify`: files that are sound, and files that are not."""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from llamina.gguf import GGUF, open_model, tensor_type, write, write_shards
from llamina.hub.catalogue import CATALOGUE, Entry
from llamina.hub.checksums import known_sha256
from lora_files import draw, save
from seeing_models import write_encoder
from skips import needs

Invoke = Callable[..., Result]


def copy(path: Path, out: Path, leave: tuple[str, ...] = (), **metadata: object) -> Path:
    """A model again, without some tensors; `metadata` with `__` for dots."""
    with GGUF.open(path) as file:
        kept = [tensor for name, tensor in file.tensors.items() if name not in leave]
        known = file.metadata | {key.replace("__", "."): value for key, value in metadata.items()}
        write(out, known, kept, metadata_types=file.metadata_types)
    return out


def damaged(path: Path, out: Path, tensor: str) -> Path:
    """A copy with one byte of a tensor changed."""
    raw = bytearray(path.read_bytes())
    with GGUF.open(path) as file:
        raw[file.tensors[tensor].offset + 8] ^= 1
    out.write_bytes(raw)
    return out


def test_a_sound_file(invoke: Invoke, stories: Path) -> None:
    result = invoke("verify", stories)
    assert result.exit_code == 0 and "is sound: " in result.stdout
    digest = hashlib.sha256(stories.read_bytes()).hexdigest()
    result = invoke("verify", stories, "--sha256")
    assert result.stdout.splitlines()[0] == f"{digest}  {stories.name}"
    assert f"nobody knows which SHA-256 {stories.name} should have" in result.stdout and result.exit_code == 1
    found = json.loads(invoke("verify", stories, "--sha256", "--json").stdout)
    assert found["sha256"] == {stories.name: digest} and found["sound"] is False
    found = json.loads(invoke("verify", stories, "--json").stdout)
    assert found["mistakes"] == [] and found["tensors"] > 10
    assert found["sound"] is True and found["missing"] == [] == found["unused"]
    assert invoke("verify", stories, "--quiet").output == ""


def test_values_that_are_no_numbers(invoke: Invoke, tmp_path: Path) -> None:
    values = np.ones((2, 32), np.float32)
    values[1, 3:5] = np.nan, np.inf
    kind = tensor_type("F32")
    tensors = [("good", (1, 32), kind, values[:1]), ("odd", (2, 32), kind, values)]
    write(tmp_path / "bad.gguf", {"general.architecture": "none"}, tensors)
    result = invoke("verify", tmp_path / "bad.gguf")
    assert result.exit_code == 1 and result.stdout == "odd has 2 values that are NaN or infinite\n"
    assert "it holds no model and no encoder known here (architecture none, type None)" in result.stderr
    assert invoke("verify", tmp_path / "bad.gguf", "--no-values").exit_code == 0
    assert json.loads(invoke("verify", tmp_path / "bad.gguf", "--json").stdout)["mistakes"]


def test_a_file_that_is_cut_off(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(stories.read_bytes()[:-100])
    result = invoke("verify", tmp_path / "cut.gguf")
    assert result.exit_code == 1 and "the file is damaged, get it again" in result.stdout
    found = json.loads(invoke("verify", tmp_path / "cut.gguf", "--json").stdout)
    assert found["sound"] is False and len(found["mistakes"]) == 1
    assert invoke("verify", "nobody").exit_code == 3


def test_encoders(invoke: Invoke, tmp_path: Path) -> None:
    """All tensors of an mmproj file are asked for, those of pictures and of sounds; a missing or odd one is told."""
    for family in ("qwen2vl", "qwen3vl", "ultravox"):
        path = tmp_path / f"{family}.gguf"
        write_encoder(family, path, 64)
        told = json.loads(invoke("verify", path, "--json").stdout)
        assert told["sound"] and told["unused"] == [] == told["notes"], told
    file = GGUF.open(path)
    kept = [tensor for name, tensor in file.tensors.items() if not name.startswith("a.blk.1.ffn_up.")]
    odd = ("a.blk.9.odd.weight", (4,), tensor_type("F32"), np.zeros(4, np.float32))
    write(tmp_path / "wrong.gguf", file.metadata, [*kept, odd], metadata_types=file.metadata_types)
    told = json.loads(invoke("verify", tmp_path / "wrong.gguf", "--json").stdout)
    assert told["missing"] == ["a.blk.1.ffn_up.weight"] and not told["sound"]
    write(tmp_path / "odd.gguf", file.metadata, [*file.tensors.values(), odd], metadata_types=file.metadata_types)
    assert json.loads(invoke("verify", tmp_path / "odd.gguf", "--json").stdout)["unused"] == [odd[0]]


def test_a_file_that_is_another(invoke: Invoke, stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("tiny", "", stories.name, "", "base", stories.stat().st_size, "0" * 64, ())
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    result = invoke("verify", stories, "--sha256", "--no-values")
    assert result.exit_code == 1 and f"{stories.name} has another SHA-256 than the catalogue's" in result.stdout


@needs("hardware", sys.platform != "win32", "symbolic links")
def test_files_of_the_hub(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    """In the Hub's cache a file is a link to one that is named by its SHA-256; in other folders that is noted."""
    raw = stories.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    for number, name in enumerate((digest, "0" * 64)):
        blob = tmp_path / f"models--a--b{number}" / "blobs" / name
        path = tmp_path / f"models--a--b{number}" / "snapshots" / "1" / "m.gguf"
        blob.parent.mkdir(parents=True)
        path.parent.mkdir(parents=True)
        blob.write_bytes(raw)
        path.symlink_to(blob)
        assert known_sha256(path) == (name, "the Hugging Face Hub")
        result = invoke("verify", path, "--sha256")
        assert result.exit_code == number
        assert ("m.gguf has another SHA-256 than the Hugging Face Hub's" in result.stdout) == bool(number)
    path = tmp_path / "local" / "sub" / "m.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    noted = tmp_path / "local" / ".cache" / "huggingface" / "download" / "sub" / "m.gguf.metadata"
    noted.parent.mkdir(parents=True)
    noted.write_text(f"1234\n{digest}\n1700000000.0\n")
    assert known_sha256(path) == (digest, "the Hugging Face Hub")
    assert known_sha256(stories) is None


def test_missing_and_unused_tensors(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    """All that are missing, if other layers have theirs; a whole layer, and one that no layer has."""
    gone = ("blk.1.attn_q.weight", "blk.2.ffn_down.weight", "blk.2.ffn_norm.weight")
    told = json.loads(invoke("verify", copy(stories, tmp_path / "a.gguf", gone), "--json").stdout)
    assert set(told["missing"]) == set(gone) and told["sound"] is False
    assert "blk.1.attn_q.weight" in told["mistakes"][0]
    result = invoke("verify", copy(stories, tmp_path / "b.gguf", ("output_norm.weight",)))
    assert result.exit_code == 1 and "it lacks output_norm.weight, which the architecture asks for" in result.stdout

    with GGUF.open(stories) as file:
        extra = [*file.tensors.values(), ("blk.0.odd.weight", (4,), tensor_type("F32"), bytes(16))]
        write(tmp_path / "c.gguf", file.metadata, extra, metadata_types=file.metadata_types)
    result = invoke("verify", tmp_path / "c.gguf")
    assert result.exit_code == 0 and "1 of its tensors are not used: blk.0.odd.weight" in result.stderr

    short = copy(stories, tmp_path / "d.gguf", llama__block_count=0)
    result = invoke("verify", short)
    assert result.exit_code == 1 and "llama.block_count is 0: it must be a whole number" in result.stdout


def test_vocabularies_and_adapters(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    scores = np.zeros(3, np.float32)
    result = invoke("verify", copy(stories, tmp_path / "a.gguf", tokenizer__ggml__scores=scores))
    assert result.exit_code == 1 and "tokenizer.ggml.scores" in result.stdout
    result = invoke("verify", copy(stories, tmp_path / "b.gguf", tokenizer__ggml__model="new"))
    assert result.exit_code == 0 and "new" in result.stderr
    lora = save(tmp_path / "lora.gguf", "llama", draw(stories, ["blk.0.attn_q.weight"], 2, 1))
    assert invoke("verify", lora).exit_code == 0
    result = invoke("verify", copy(lora, tmp_path / "half.gguf", ("blk.0.attn_q.weight.lora_b",)))
    assert result.exit_code == 1 and "lacks blk.0.attn_q.weight.lora_b" in result.stdout


def test_a_manifest(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest"
    path = copy(stories, tmp_path / "m.gguf")
    manifest.write_text("# by hand\n" + invoke("hash", path, "--type", "all").stdout)
    result = invoke("verify", path, "--manifest", manifest)
    assert result.exit_code == 0 and "hashes as expected" in result.stdout, result.output
    folder = tmp_path / "other"
    folder.mkdir()
    other = damaged(path, folder / "m.gguf", "blk.0.attn_q.weight")
    told = json.loads(invoke("verify", other, "--manifest", manifest, "--no-values", "--json").stdout)
    said = "\n".join(told["mistakes"])
    assert "m.gguf: the tensor blk.0.attn_q.weight has another sha256 than in the manifest" in said
    assert "the data of all tensors has another uuid" in said and "the file has another sha256" in said
    assert len(told["mistakes"]) == 4 + 5 + 1  # of one tensor, of all, of the file
    (folder / "none").write_text("")
    result = invoke("verify", path, "--manifest", folder / "none")
    assert result.exit_code == 2 and "has no hash of m.gguf" in result.stderr
    (folder / "none").write_text("what is this\n")
    result = invoke("verify", path, "--manifest", folder / "none")
    assert result.exit_code == 2 and "line 1 is 'what is this'" in result.stderr
    assert invoke("verify", path, "--manifest", tmp_path / "nothing").exit_code == 3
    manifest.write_text(f"sha256    {'0' * 64}  some/folder/m.gguf:no.such.tensor\n")
    result = invoke("verify", path, "--manifest", manifest)
    assert (
        result.exit_code == 1 and "the manifest has no.such.tensor of m.gguf, which the file does not" in result.stdout
    )


def test_hashes_in_the_file(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "hashed.gguf"
    assert invoke("verify", stories, "--write-hashes", out).exit_code == 0
    result = invoke("verify", out)
    with GGUF.open(out) as file:
        listed = file.metadata["general.tensor_hashes"]
        assert isinstance(listed, list) and len(listed) == len(file.tensors)
        lines = invoke("hash", stories, "--type", "blake3").stdout.splitlines()
        assert listed[0] == f"{next(iter(file.tensors))}:{lines[0].split()[1]}"
        assert f"{len(listed)} hashes as expected" in result.stdout
    assert invoke("verify", stories, "--write-hashes", out).exit_code == 2
    assert invoke("verify", out, "--write-hashes", out, "--force").exit_code == 2
    bad = damaged(out, tmp_path / "bad.gguf", "blk.2.ffn_up.weight")
    result = invoke("verify", bad, "--no-values", "--write-hashes", tmp_path / "never.gguf")
    assert (
        result.exit_code == 1
        and result.stdout == "blk.2.ffn_up.weight has other data than general.tensor_hashes says\n"
    )
    assert not (tmp_path / "never.gguf").exists()
    assert invoke("verify", bad, "--no-hashes").exit_code == 0
    result = invoke("verify", copy(out, tmp_path / "less.gguf", ("blk.2.ffn_up.weight",)), "--no-values")
    assert "general.tensor_hashes has blk.2.ffn_up.weight, which the file does not" in result.stdout
    for wrong in (["x:12"], "x", [":" + "0" * 64]):
        result = invoke("verify", copy(stories, tmp_path / "wrong.gguf", general__tensor_hashes=wrong))
        assert result.exit_code == 1 and "which is not NAME:HEX of BLAKE3" in result.stdout


def test_shards(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    with open_model(stories) as file:
        paths = write_shards(
            tmp_path / "s", file.metadata, file.tensors.values(), max_tensors=20, metadata_types=file.metadata_types
        )
    told = json.loads(invoke("verify", paths[1], "--sha256", "--json").stdout)
    assert sorted(told["sha256"]) == [path.name for path in paths] and len(told["mistakes"]) == len(paths)
    manifest = tmp_path / "manifest"
    manifest.write_text(invoke("hash", paths[0]).stdout)
    assert invoke("verify", paths[0], "--manifest", manifest).exit_code == 0
    paths[2].unlink()
    assert invoke("verify", paths[0]).exit_code == 3
