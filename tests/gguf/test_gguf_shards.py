"""llamina.gguf.shards: split models opened as one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamina.errors import ModelFileError, ModelNotFound, RequestError
from llamina.gguf import GGUF, Kind, ValueType, open_model, write, write_shards
from skips import import_peer


@pytest.fixture
def shards(tmp_path: Path, contents: Any) -> list[Path]:
    """Five tensors in three files."""
    path = tmp_path / "model.gguf"
    return write_shards(path, contents.metadata, contents.tensors, max_tensors=2, metadata_types=contents.kinds)


def rewrite(path: Path, **changes: object) -> None:
    """Write a shard again with other `split.` keys; None takes a key out."""
    file = GGUF.open(path)
    metadata = file.metadata | {f"split.{key}": value for key, value in changes.items()}
    kept = {key: value for key, value in metadata.items() if value is not None}
    write(path, kept, file.tensors.values())


def test_any_shard_opens_the_model(shards: list[Path], contents: Any) -> None:
    assert [path.name for path in shards] == [f"model-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for path in shards:
        contents.check(open_model(path))


def test_a_relative_path_finds_its_siblings(shards: list[Path], contents: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shards[0].parent)
    contents.check(open_model(shards[1].name))


def test_a_whole_file_passes_through(small: Path, contents: Any) -> None:
    contents.check(open_model(small))


def test_one_shard_of_one_passes_through(tmp_path: Path, contents: Any) -> None:
    (path,) = write_shards(tmp_path / "a.gguf", contents.metadata, contents.tensors, max_tensors=9)
    assert list(open_model(path).tensors) == [name for name, *_ in contents.tensors]


def test_a_merged_model_can_be_written_as_one_file(shards: list[Path], contents: Any) -> None:
    model = open_model(shards[0])
    path = shards[0].with_name("whole.gguf")
    write(path, model.metadata, model.tensors.values(), metadata_types=model.metadata_types)
    contents.check(open_model(path))


def test_a_missing_shard_is_named(shards: list[Path]) -> None:
    shards[1].unlink()
    with pytest.raises(ModelNotFound, match=r"model-00002-of-00003\.gguf"):
        open_model(shards[2])


def test_a_name_without_numbers_is_refused(shards: list[Path]) -> None:
    with pytest.raises(ModelFileError, match="NAME-00001-of-00003"):
        open_model(shards[0].rename(shards[0].with_name("model.gguf")))
    with pytest.raises(ModelFileError, match="NAME-00001-of-00003"):
        open_model(shards[1].rename(shards[1].with_name("model-00002-of-00004.gguf")))


def test_a_shard_under_the_name_of_another_is_refused(shards: list[Path]) -> None:
    shutil.copy(shards[1], shards[2])
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf: split\.no and split\.count are 1 and 3"):
        open_model(shards[0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 4}, "3 and 4|2 and 4"),
        ({"no": None}, r"split\.no is missing"),
        ({"no": "2"}, r"split\.no is STRING"),
        ({"count": np.array([3])}, r"split\.count is ARRAY"),
        ({"no": True}, r"split\.no is BOOL"),
    ],
)
def test_wrong_numbers_are_refused(shards: list[Path], changes: dict[str, object], words: str) -> None:
    rewrite(shards[2], **changes)
    with pytest.raises(ModelFileError, match=words):
        open_model(shards[0])


def test_a_wrong_number_of_tensors_is_refused(shards: list[Path]) -> None:
    rewrite(shards[0], **{"tensors.count": 6})
    with pytest.raises(ModelFileError, match=r"split\.tensors\.count is 6, the shards hold 5"):
        open_model(shards[0])


def test_a_tensor_in_two_shards_is_refused(shards: list[Path]) -> None:
    last, first = GGUF.open(shards[2]), GGUF.open(shards[0])
    write(shards[2], last.metadata, [*last.tensors.values(), first.tensors["norm"]])
    with pytest.raises(ModelFileError, match="'norm' is in another shard too"):
        open_model(shards[0])


def test_shards_hold_a_tensor_at_least(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="max_tensors is 0"):
        write_shards(tmp_path / "a.gguf", {}, [], max_tensors=0)


def test_llama_cpp_runs_our_shards(golden: Callable[[str], Path], tmp_path: Path) -> None:
    xlc = import_peer("xllamacpp")
    file = GGUF.open(golden("stories260K.gguf"))
    paths = write_shards(
        tmp_path / "s.gguf",
        file.metadata,
        file.tensors.values(),
        max_tensors=20,
        metadata_types=file.metadata_types,
    )
    assert GGUF.open(paths[2]).metadata_types["split.count"] == Kind(ValueType.UINT16)
    texts = []
    for path in (golden("stories260K.gguf"), paths[0]):
        params = xlc.CommonParams()
        params.model.path, params.n_ctx, params.verbosity = str(path), 256, -1
        params.warmup, params.cpuparams.n_threads = False, 1
        request = {"prompt": "The cat", "max_tokens": 20, "temperature": 0}
        texts.append(xlc.Server(params).handle_completions(request)["choices"][0]["text"])
    assert texts[0] == texts[1] != ""
