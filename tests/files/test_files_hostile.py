"""Damaged files: every tool gives an error of ours or a result, and never a file that is half written."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from damage import mutate
from llamina.errors import LlaminaError
from llamina.files import Report, compare, edit, export_lora, hash_file, merge, split, verify, write_hashes
from llamina.gguf import GGUF, open_model, tensor_type, write
from lora_files import draw, save
from seeing_models import write_encoder

MUTANTS = int(os.environ.get("LLAMINA_MUTANTS", "300"))


@pytest.fixture(scope="module")
def tiny(files: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama in two types with a list of hashes, whose header is short."""
    folder = tmp_path_factory.mktemp("tiny")
    with open_model(files("llama-dense")) as file:
        tensors = [tensor for name, tensor in file.tensors.items() if not name.startswith("blk.") or "blk.0." in name]
        metadata = {**file.metadata, "llama.block_count": 1, "general.file_type": 0}
        write(folder / "plain.gguf", metadata, tensors, metadata_types=file.metadata_types)
    return write_hashes(folder / "plain.gguf", folder / "tiny.gguf")


def header_of(path: Path) -> int:
    with GGUF.open(path) as file:
        return min(tensor.offset for tensor in file.tensors.values())


def test_the_tools_on_mutants(tiny: Path, tmp_path: Path) -> None:
    """Each tool reads the whole of a mutant. What it raises is ours, and then there is no new file."""
    raw, rng, header = tiny.read_bytes(), random.Random(2), header_of(tiny)
    path, out = tmp_path / "mutant.gguf", tmp_path / "out"
    other = open_model(tiny)
    adapter = save(tmp_path / "a.gguf", "llama", draw(tiny, ["blk.0.attn_q.weight"], 2, 1))

    def difference(new: Path) -> None:
        with open_model(path) as file:
            compare(other, file, errors=True)

    tools: dict[str, Callable[[Path], object]] = {
        "hash": lambda new: list(hash_file(path, ["xxh64"])),
        "diff": difference,
        "edit": lambda new: edit(path, new, set={"general.name": "x"}),
        "split": lambda new: split(path, new, max_tensors=4),
        "merge": lambda new: merge(path, new),
        "export-lora": lambda new: export_lora(path, [adapter], new),
        "hashes": lambda new: write_hashes(path, new),
    }
    refused = dict.fromkeys([*tools, "verify"], 0)
    for _ in range(MUTANTS):
        path.write_bytes(mutate(raw, rng, header))
        refused["verify"] += not verify(path).sound
        out.mkdir()
        for name, tool in tools.items():
            try:
                tool(out / "new.gguf")
            except LlaminaError:
                refused[name] += 1
                assert list(out.iterdir()) == [], name
            for made in out.iterdir():
                GGUF.open(made).close()
                made.unlink()
        out.rmdir()
    assert refused["merge"] == MUTANTS and all(count > MUTANTS / 5 for count in refused.values()), refused
    assert all(refused[name] < MUTANTS for name in tools if name != "merge"), refused


def test_a_mutated_adapter(tiny: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "a.gguf", tmp_path / "out.gguf"
    raw = save(path, "llama", draw(tiny, ["blk.0.attn_q.weight"], 2, 1), alpha=4.0).read_bytes()
    rng, refused = random.Random(3), 0
    for _ in range(MUTANTS):
        path.write_bytes(mutate(raw, rng, len(raw)))
        try:
            export_lora(tiny, [path], out, overwrite=True)
        except LlaminaError:
            refused += 1
    assert MUTANTS / 5 < refused < MUTANTS


def test_every_cut_and_flipped_bit_is_found(tiny: Path, tmp_path: Path) -> None:
    """A cut anywhere; and a bit anywhere in the data, by the hashes that the file lists."""
    raw, rng = tiny.read_bytes(), random.Random(4)
    path = tmp_path / "cut.gguf"
    for _ in range(100):
        path.write_bytes(raw[: rng.randrange(1, len(raw) - 32)])
        assert not verify(path).sound
    with GGUF.open(tiny) as file:
        used = np.zeros(len(raw), np.bool_)
        for tensor in file.tensors.values():
            used[tensor.offset : tensor.offset + tensor.nbytes] = True
    places = np.flatnonzero(used).tolist()
    for _ in range(100):
        at = rng.choice(places)
        mutant = bytearray(raw)
        mutant[at] ^= 1 << rng.randrange(8)
        path.write_bytes(mutant)
        assert not verify(path, values=False).sound


def test_hostile_encoders(tmp_path: Path) -> None:
    """The same of the few keys of an encoder that are not all read as numbers."""
    write_encoder("qwen3vl", tmp_path / "e.gguf", 64)
    keys = ["general.architecture", "clip.use_gelu", "clip.vision.image_mean", "clip.projector_type"]
    keys += ["clip.has_vision_encoder", "clip.vision.projector.scale_factor", "clip.vision.patch_size"]
    with GGUF.open(tmp_path / "e.gguf") as file:
        for key in keys:
            for value in (0, 2**24, -1, float("nan"), True, "x", ["a"], np.arange(3), np.zeros(0), []):
                write(tmp_path / "m.gguf", {**file.metadata, key: value}, file.tensors.values())
                assert isinstance(verify(tmp_path / "m.gguf", values=False), Report)


def test_hostile_metadata(stories: Path, tmp_path: Path) -> None:
    """Values of every type and size under every key of a model: a report, and not after a long time."""
    path = tmp_path / "m.gguf"
    odd = [0, 2**24, 2**32 - 1, -1, float("nan"), 1e30, True, "", "x", ["a"], np.arange(3), np.zeros(0), []]
    with GGUF.open(stories) as file:
        small = [tensor for name, tensor in file.tensors.items() if "blk." not in name or "blk.0." in name]
        known = file.metadata | {"llama.block_count": 1}
        for key in [*known, "llama.rope.dimension_sections", "llama.expert_count", "split.count", "general.type"]:
            for value in odd:
                write(path, {**known, key: value}, small)
                assert isinstance(verify(path, values=False), Report)


def test_a_file_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    write(path, {}, [])
    assert verify(path).sound and verify(path).notes
    edit(path, tmp_path / "more.gguf", set={"a": 1})
    assert split(path, tmp_path / "s")[0].tensors == 0
    with GGUF.open(path) as one, GGUF.open(tmp_path / "more.gguf") as other:
        assert compare(one, other).metadata_added == ("a",)
    write(path, {}, [("x", (), tensor_type("F32"), bytes(4))])
    with GGUF.open(path) as one, GGUF.open(path) as other:
        assert not compare(one, other, errors=True)
