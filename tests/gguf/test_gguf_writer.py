"""llamina.gguf.writer: round trips, and what other readers make of the files."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.scripts import gguf_convert_endian
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

import gguf
from llamina.errors import RequestError
from llamina.gguf import (
    GGUF,
    TENSOR_TYPES,
    ByteOrder,
    Kind,
    TensorType,
    ValueType,
    kind_of,
    tensor_type,
    write,
)
from llamina.gguf.writer import replacing
from skips import import_peer

F32 = tensor_type("F32")


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize("alignment", [1, 32, 4096])
def test_round_trip(version: int, byteorder: ByteOrder, alignment: int, tmp_path: Path, contents: Any) -> None:
    path = tmp_path / "a.gguf"
    metadata = contents.metadata | {"general.alignment": alignment}
    write(path, metadata, contents.tensors, metadata_types=contents.kinds, version=version, byteorder=byteorder)
    file = GGUF.open(path)
    assert (file.version, file.byteorder, file.alignment) == (version, byteorder, alignment)
    assert file.metadata.pop("general.alignment") == alignment
    assert file.metadata_types.pop("general.alignment") == Kind(ValueType.UINT32)
    assert all(tensor.offset % alignment == 0 for tensor in file.tensors.values())
    contents.check(file)


NUMBERS = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(width=32, allow_nan=False)
DTYPES = st.one_of(
    stn.integer_dtypes(),
    stn.unsigned_integer_dtypes(),
    stn.boolean_dtypes(),
    stn.floating_dtypes(sizes=(32, 64)),
)
ARRAYS = stn.arrays(DTYPES, st.integers(0, 9))
LEAVES = st.lists(st.text()) | ARRAYS
VALUES = NUMBERS | st.text() | st.recursive(LEAVES, lambda inner: st.lists(inner, min_size=1), max_leaves=6)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metadata=st.dictionaries(st.text(min_size=1).filter(lambda key: key != "general.alignment"), VALUES),
    types=st.lists(st.sampled_from(sorted(TENSOR_TYPES)), max_size=5),
    rows=st.lists(st.integers(1, 3), max_size=3),
    version=st.integers(1, 3),
    alignment=st.sampled_from([1, 8, 64]),
)
def test_anything_round_trips(
    metadata: dict[str, Any],
    types: list[int],
    rows: list[int],
    version: int,
    alignment: int,
    tmp_path: Path,
    same: Callable[[Any, Any], None],
) -> None:
    kinds = [TENSOR_TYPES[number] for number in types]
    tensors = [
        (f"t{i}", (*rows, kind.block), kind, bytes([i]) * kind.size((*rows, kind.block)))
        for i, kind in enumerate(kinds)
    ]
    write(tmp_path / "a.gguf", metadata, tensors, version=version, alignment=alignment)
    file = GGUF.open(tmp_path / "a.gguf")
    for key, value in metadata.items():
        same(file.metadata[key], _native(value))
    assert [(t.name, t.shape, t.type, t.data.tobytes()) for t in file.tensors.values()] == tensors


def _native(value: Any) -> Any:
    """Arrays in this machine's byte order, at any depth."""
    if isinstance(value, list):
        return [_native(item) for item in value]
    return value.astype(value.dtype.newbyteorder("=")) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_the_gguf_package_reads_our_files(version: int, byteorder: ByteOrder, tmp_path: Path, contents: Any) -> None:
    path = tmp_path / "a.gguf"
    metadata = {key: value for key, value in contents.metadata.items() if key not in ("nested", "none")}
    write(path, metadata, contents.tensors, metadata_types=contents.kinds, version=version, byteorder=byteorder)
    peer = gguf.GGUFReader(path)
    for key, value in metadata.items():
        assert peer.fields[key].contents() == (value.tolist() if isinstance(value, np.ndarray) else value)
    for tensor, (name, shape, kind, data) in zip(peer.tensors, contents.tensors, strict=True):
        assert (tensor.name, tensor.tensor_type) == (name, kind.id)
        assert tuple(reversed(tensor.shape.tolist())) == shape
        if byteorder == "little":
            assert tensor.data.tobytes() == data
    if byteorder == "big":
        assert peer.tensors[1].data.tolist() == np.frombuffer(contents.tensors[1][3], "<f4").tolist()


def test_files_are_written_back_byte_for_byte(golden: Callable[[str], Path], tmp_path: Path) -> None:
    for name in ("stories260K.gguf", "vocab/ggml-vocab-bert-bge.gguf"):
        file = GGUF.open(golden(name))
        write(tmp_path / "a.gguf", file.metadata, file.tensors.values(), metadata_types=file.metadata_types)
        assert (tmp_path / "a.gguf").read_bytes() == golden(name).read_bytes()


def test_big_endian_blocks_are_those_of_the_gguf_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [TENSOR_TYPES[kind.value] for kind in gguf_convert_endian.byteswap_tensors] + [tensor_type("BF16")]
    rng = np.random.default_rng(2)
    tensors = [(kind.name, (2, 256), kind, rng.bytes(kind.size((2, 256)))) for kind in kinds]
    write(tmp_path / "ours.gguf", {"a": 1}, tensors, byteorder="big")
    write(tmp_path / "theirs.gguf", {"a": 1}, tensors)
    monkeypatch.setattr("builtins.input", lambda _: "YES")
    args = argparse.Namespace(order="big", dry_run=False)
    gguf_convert_endian.convert_byteorder(gguf.GGUFReader(tmp_path / "theirs.gguf", "r+"), args)
    ours, theirs = GGUF.open(tmp_path / "ours.gguf"), GGUF.open(tmp_path / "theirs.gguf")
    for name, _, _, data in tensors:
        assert ours.tensors[name].data.tobytes() == data
        assert theirs.tensors[name].data.tobytes() == data


def completion(path: Path) -> str:
    """What llama.cpp continues greedily with that model."""
    xlc = import_peer("xllamacpp")
    params = xlc.CommonParams()
    params.model.path, params.n_ctx, params.verbosity = str(path), 256, -1
    params.warmup, params.cpuparams.n_threads = False, 1
    request = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
    text: str = xlc.Server(params).handle_completions(request)["choices"][0]["text"]
    return text


def test_llama_cpp_runs_our_files(golden: Callable[[str], Path], tmp_path: Path) -> None:
    original = golden("stories260K.gguf")
    file = GGUF.open(original)
    kinds = file.metadata_types
    write(tmp_path / "v2.gguf", file.metadata, reversed(file.tensors.values()), metadata_types=kinds, version=2)
    write(tmp_path / "wide.gguf", file.metadata, file.tensors.values(), alignment=1024)  # kinds of our own choice
    expected = completion(original)
    assert len(expected) > 80
    assert completion(tmp_path / "v2.gguf") == expected
    assert completion(tmp_path / "wide.gguf") == expected


U, I, F, A, S = ValueType.UINT32, ValueType.INT32, ValueType.FLOAT32, ValueType.ARRAY, ValueType.STRING  # noqa: E741


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0, Kind(U)),
        (2**32 - 1, Kind(U)),
        (-1, Kind(I)),
        (2**32, Kind(ValueType.INT64)),
        (2**63, Kind(ValueType.UINT64)),
        (True, Kind(ValueType.BOOL)),
        (1.0, Kind(F)),
        (np.float64(1), Kind(ValueType.FLOAT64)),
        (np.array(1, np.int8), Kind(ValueType.INT8)),
        ("a", Kind(S)),
        ([], Kind(A, S)),
        (["a"], Kind(A, S)),
        (np.array(["a"]), Kind(A, S)),
        ([1, -1], Kind(A, I)),
        ((1, 2**31), Kind(A, U)),
        ([1, 0.5], Kind(A, F)),
        ([True], Kind(A, ValueType.BOOL)),
        ([np.uint8(1)], Kind(A, ValueType.UINT8)),
        (np.zeros(2, ">i8"), Kind(A, ValueType.INT64)),
        (np.zeros((2, 2)), Kind(A, A)),
        ([[1], ["a"]], Kind(A, A)),
    ],
)
def test_default_kinds(value: object, kind: Kind, tmp_path: Path) -> None:
    assert kind_of("key", value) == kind
    write(tmp_path / "a.gguf", {"key": value}, [])
    assert GGUF.open(tmp_path / "a.gguf").metadata_types["key"] == kind


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (b"bytes", None),
        ({}, None),
        (2**64, None),
        ([1, "a"], None),
        ([1, True], None),
        (np.zeros(1, complex), None),
        (CYCLE, None),
        ("\ud800", None),
        (1e300, Kind(F)),
        (-1, Kind(U)),
        (1.5, Kind(I)),
        (float("nan"), Kind(I)),
        ("1", Kind(I)),
        (1, Kind(S)),
        ([1], Kind(U)),
        (1, Kind(A, U)),
        ([1], Kind(A)),
        ([1], Kind(A, A)),
        ([[1], [2]], Kind(A, U)),
        ([[1], [2, 3]], Kind(A, U)),
        ([256], Kind(A, ValueType.UINT8)),
        (np.array([-1]), Kind(A, U)),
        ([1], Kind(A, S)),
    ],
)
def test_values_that_no_type_holds_are_refused(value: object, kind: Kind | None, tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        write(tmp_path / "a.gguf", {"key": value}, [], metadata_types={"key": kind} if kind else None)
    assert list(tmp_path.iterdir()) == []


Q8 = tensor_type("Q8_0")


@pytest.mark.parametrize(
    ("shape", "kind", "data"),
    [
        ((2, 16), Q8, bytes(34)),
        ((0,), F32, b""),
        ((1, 1, 1, 1, 1), F32, bytes(4)),
        ((-1,), F32, bytes(4)),
        ((), Q8, bytes(34)),
        ((2,), F32, bytes(7)),
        ((2,), F32, np.zeros(2)),
    ],
)
def test_tensors_that_do_not_fit_are_refused(shape: Any, kind: TensorType, data: Any, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="x"):
        write(tmp_path / "a.gguf", {}, [("x", shape, kind, data)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"version": 0}, {"version": 4}, {"alignment": 0}, {"alignment": 24}])
def test_options_out_of_range_are_refused(options: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        write(tmp_path / "a.gguf", {}, [], **options)  # type: ignore[arg-type]
    assert caught.value.param == next(iter(options))


def test_names_are_unique_short_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="65535"):
        write(tmp_path / "a.gguf", {"k" * 65536: 1}, [])
    with pytest.raises(RequestError, match="two tensors are named x"):
        write(tmp_path / "a.gguf", {}, [("x", (1,), F32, bytes(4))] * 2)
    with pytest.raises(RequestError, match="key is empty"):
        write(tmp_path / "a.gguf", {"": 1}, [])


def test_data_may_be_an_array_of_any_layout_or_made_late(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    sources: list[Any] = [
        ("plain", (3, 4), F32, values),
        ("turned", (4, 3), F32, values.T),
        ("big", (3, 4), F32, values.astype(">f4")),
        ("late", (3, 4), F32, lambda: values.data),
    ]
    write(tmp_path / "a.gguf", {}, sources)
    found = {name: tensor.data.view("<f4") for name, tensor in GGUF.open(tmp_path / "a.gguf").tensors.items()}
    np.testing.assert_array_equal(found.pop("turned"), values.T.reshape(-1))
    for data in found.values():
        np.testing.assert_array_equal(data, values.reshape(-1))


def test_a_failure_leaves_the_old_file(small: Path, contents: Any) -> None:
    def broken() -> bytes:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write(small, {}, [*contents.tensors, ("late", (1,), F32, broken)])
    contents.check(GGUF.open(small))
    assert list(small.parent.iterdir()) == [small]


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_data_in_parts(byteorder: ByteOrder, tmp_path: Path) -> None:
    """A maker may give a tensor piece by piece; the pieces are written as they come."""
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    write(tmp_path / "a.gguf", {}, [("t", (4, 3), F32, lambda: iter(rows))], byteorder=byteorder)
    assert np.array_equal(GGUF.open(tmp_path / "a.gguf").tensors["t"].data.view("<f4").reshape(4, 3), rows)


@pytest.mark.parametrize("parts", [3, 5])
def test_parts_that_are_not_the_whole(parts: int, tmp_path: Path) -> None:
    row = np.zeros(3, np.float32)
    with pytest.raises(RequestError, match=r"t: (36|60) bytes, where F32 \(4, 3\) takes 48"):
        write(tmp_path / "a.gguf", {}, [("t", (4, 3), F32, lambda: iter([row] * parts))])
    assert list(tmp_path.iterdir()) == []


def test_what_killed_writers_left_is_deleted(tmp_path: Path) -> None:
    """What others still write stays, and what is of another file."""
    left, other = tmp_path / ".a.gguf.0123abcd.part", tmp_path / ".b.gguf.0123abcd.part"
    left.write_bytes(b"half")
    other.write_bytes(b"half")
    with replacing(tmp_path / "a.gguf") as file:
        assert not left.exists()
        file.write(b"first")
        with replacing(tmp_path / "a.gguf") as second:
            second.write(b"second")
        assert (tmp_path / "a.gguf").read_bytes() == b"second"
    assert (tmp_path / "a.gguf").read_bytes() == b"first"
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "a.gguf"]
