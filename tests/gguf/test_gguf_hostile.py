"""Damaged and hostile files: always an error of ours that names the byte, never a crash or a hang."""

import random
import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from damage import BIG, mutate
from llamina.errors import LlaminaError, ModelFileError, UnsupportedModel
from llamina.gguf import GGUF, write


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def entry(name: bytes, dims: Sequence[int], kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    count = len(dims) if n_dims is None else n_dims
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, kind, offset)


def build(
    pairs: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    data: bytes = b"",
    counts: tuple[int | None, int | None] = (None, None),
) -> bytes:
    """A version 3 file by hand, independent of our writer; `counts` lies about tensors and pairs."""
    n_tensors = len(entries) if counts[0] is None else counts[0]
    n_pairs = len(pairs) if counts[1] is None else counts[1]
    head = b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_pairs) + b"".join(pairs) + b"".join(entries)
    return head + bytes(-len(head) % 32) + data


def read(path: Path, raw: bytes) -> GGUF:
    """Open those bytes and touch everything."""
    path.write_bytes(raw)
    file = GGUF.open(path)
    repr(file.metadata)
    for tensor in file.tensors.values():
        tensor.data.sum()
    return file


def test_the_builder_builds_good_files(tmp_path: Path) -> None:
    raw = build([pair(b"a", 4, struct.pack("<I", 7))], [entry(b"x", [2])], bytes(8))
    file = read(tmp_path / "a", raw)
    assert file.metadata == {"a": 7} and file.tensors["x"].shape == (2,)


def array(kind: int, count: int, rest: bytes = b"") -> bytes:
    return pair(b"a", 9, struct.pack("<IQ", kind, count) + rest)


ALIGN = b"general.alignment"
DAMAGED = {
    "other magic": b"GGML" + build()[4:],
    "version 0": b"GGUF" + bytes(20),
    "pairs twice": build([pair(b"a", 7, b"\1")] * 2),
    "tensors twice": build([], [entry(b"x", [1]), entry(b"x", [1], offset=32)], bytes(64)),
    "empty key": build([pair(b"", 7, b"\1")]),
    "a long key": build([pair(b"k" * 65536, 7, b"\1")]),
    "a long tensor name": build([], [entry(b"x" * 65536, [1])], bytes(64)),
    "unknown value type": build([pair(b"a", 13, bytes(8))]),
    "unknown element type": build([array(77, 1, bytes(8))]),
    "nested too deep": build([array(9, 1, struct.pack("<IQ", 9, 1) * 40)]),
    "alignment is a string": build([pair(ALIGN, 8, string(b"32"))]),
    "alignment is signed": build([pair(ALIGN, 5, struct.pack("<i", 32))]),
    "alignment is an array": build([pair(ALIGN, 9, struct.pack("<IQI", 4, 1, 32))]),
    "alignment 0": build([pair(ALIGN, 4, struct.pack("<I", 0))]),
    "alignment 24": build([pair(ALIGN, 4, struct.pack("<I", 24))]),
    "alignment beyond the file": build([pair(ALIGN, 4, struct.pack("<I", 2**31))], [entry(b"x", [1])], bytes(4)),
    "dimension 0": build([], [entry(b"x", [4, 0])], bytes(64)),
    "five dimensions": build([], [entry(b"x", [1, 1, 1, 1, 1])], bytes(64)),
    "2^32 - 1 dimensions": build([], [entry(b"x", [1], n_dims=2**32 - 1)], bytes(64)),
    "half a block": build([], [entry(b"x", [16], kind=8)], bytes(64)),
    "blocks only along the wrong dimension": build([], [entry(b"x", [1, 32], kind=8)], bytes(64)),
    "a scalar block": build([], [entry(b"x", [], kind=8)], bytes(64)),
    "offset not aligned": build([], [entry(b"x", [1], offset=4)], bytes(64)),
    "offset beyond the file": build([], [entry(b"x", [1], offset=64)], bytes(64)),
    "offset overflows": build([], [entry(b"x", [1], offset=2**64 - 32)], bytes(64)),
    "data ends after the file": build([], [entry(b"x", [17])], bytes(64)),
    "elements overflow": build([], [entry(b"x", [2**32, 2**32])], bytes(64)),
    "bytes overflow": build([], [entry(b"x", [2**62])], bytes(64)),
    "tensors overlap": build([], [entry(b"x", [16]), entry(b"y", [8], offset=32)], bytes(64)),
    "tensors at one place": build([], [entry(b"x", [8]), entry(b"y", [8])], bytes(64)),
    **{f"{n} pairs": build(counts=(None, n), data=bytes(64)) for n in BIG},
    **{f"{n} tensors": build(counts=(n, None), data=bytes(64)) for n in BIG},
    **{f"{n} elements of type {kind}": build([array(kind, n)]) for n in BIG for kind in (0, 4, 7, 8, 9, 12)},
    **{f"key of {n} bytes": build([struct.pack("<Q", n)], data=bytes(64)) for n in BIG},
    **{f"string of {n} bytes": build([pair(b"a", 8, struct.pack("<Q", n))], data=bytes(64)) for n in BIG},
    **{f"element of {n} bytes": build([array(8, 1, struct.pack("<Q", n))], data=bytes(64)) for n in BIG},
    **{f"dimension {n}": build([], [entry(b"x", [n])], bytes(64)) for n in BIG},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_with_its_byte(name: str, tmp_path: Path) -> None:
    tracemalloc.start()
    with pytest.raises(ModelFileError, match=r"byte \d+: "):
        read(tmp_path / "a", DAMAGED[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 18


@pytest.mark.parametrize("version", [4, 2**15, 2**31 + 1])
def test_versions_to_come_are_unsupported(version: int, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=f"version {version}"):
        read(tmp_path / "a", b"GGUF" + struct.pack("<I", version) + bytes(32))


@pytest.mark.parametrize("kind", [4, 31, 43, 2**31, 2**32 - 1])
def test_unknown_tensor_types_are_unsupported(kind: int, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=rf"byte 24: 'blk\.0\.w': tensor type {kind} "):
        read(tmp_path / "a", build([], [entry(b"blk.0.w", [256], kind)], bytes(1024)))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("order", ["little", "big"])
def test_truncation_at_every_byte(version: int, order: str, small: Path) -> None:
    whole = GGUF.open(small)
    write(
        small,
        whole.metadata,
        whole.tensors.values(),
        metadata_types=whole.metadata_types,
        version=version,
        byteorder="big" if order == "big" else "little",
    )
    raw = small.read_bytes()
    end = max(tensor.offset + tensor.nbytes for tensor in GGUF.open(small).tensors.values())
    for length in range(end):
        with pytest.raises(ModelFileError, match=r"byte \d+: "):
            read(small.with_name("cut"), raw[:length])
    assert len(read(small.with_name("cut"), raw[:end]).tensors) == len(whole.tensors)


def test_ten_thousand_mutants(small: Path) -> None:
    raw, rng, refused = small.read_bytes(), random.Random(1), 0
    mutants = small.with_name("mutant")
    for _ in range(10_000):
        try:
            read(mutants, mutate(raw, rng, len(raw)))
        except LlaminaError:
            refused += 1
    assert 2_000 < refused < 10_000
