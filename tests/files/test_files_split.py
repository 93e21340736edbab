"""`llamina split` and `merge`: the shards of llama-gguf-split, byte for byte."""

import json
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import Result

import llamina
from llamina.errors import ModelNotFound, RequestError
from llamina.files import compare, edit, merge, plan_split, split
from llamina.gguf import GGUF, open_model, tensor_type, write

Invoke = Callable[..., Result]


THEIRS = {  # SHA-256 of the shards of stories260K.gguf by llama-gguf-split of llama.cpp at 0c1e570
    "--split-max-tensors 20": [
        "a9f20db76f65f360cc945e7d94ef8a98649177000b1596907c5d8746792f4dc4",
        "6fd778b5fd55da76fd09dfd1a4ca1534d5cbc7481109c91ab551b594f12751bf",
        "5347b2ce84e83ce7f5e0a636bac675fae1cc76eeaa109aade687ed516d991584",
    ],
    "--split-max-size 1M": [
        "7b273e1dbfab11dc67dce479deb5923fef27c39cbf56a20b3a928a47b77dab3c",
        "50d019817c2626eb9e8a41f361ff5bfa538757e6f708a3076cd3356354a75694",
    ],
    "--split-max-tensors 20 --no-tensor-first-split": [
        "bca66d2dd075e6186cd4fbbec5536cafc6f7a0d6a50a6c239181a8b1e6511fcb",
        "8b6d7a36c77a5089c5436ceafa4a5cf86f020a64f7200f6abe56b7af26e737db",
        "1a4a6e8a1bf3dd9ddd3575f3378998382da0d3418ec749c59ec41f73d6ce0f94",
        "2310aa24574043a2a398464c5c245aadfcb39183ff96ba0a9fac2dbd7a73a766",
    ],
}


def equal(a: Path, b: Path) -> bool:
    with open_model(a) as one, open_model(b) as other:
        return not compare(one, other)


def test_split_and_merge(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "story-v1.5"
    result = invoke("split", stories, out, "--max-size", "500K")
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0 and [path.name for path in paths] == [
        f"story-v1.5-0000{n}-of-0000{len(paths)}.gguf" for n in range(1, len(paths) + 1)
    ]
    assert len(paths) == 3 and equal(paths[2], stories)
    assert sorted(tmp_path.iterdir()) == paths, "nothing else is left"
    whole = tmp_path / "whole.gguf"
    told = json.loads(invoke("merge", paths[0], whole, "--json").stdout)
    assert told == {"path": str(whole), "bytes": whole.stat().st_size}
    assert whole.read_bytes() == stories.read_bytes()
    with GGUF.open(paths[1]) as file:
        assert {key: file.metadata[key] for key in file.metadata} == {
            "split.no": 1, "split.count": 3, "split.tensors.count": 48,
        }  # fmt: skip
        assert [str(kind) for kind in file.metadata_types.values()] == ["UINT16", "INT32", "UINT16"]


@pytest.mark.parametrize("options", THEIRS)
def test_the_bytes_of_llama_gguf_split(invoke: Invoke, stories: Path, tmp_path: Path, options: str) -> None:
    """A file without tensors has padding at its end there, which says nothing."""
    made = [Path(path) for path in invoke("split", stories, tmp_path / "s", *options.split()).stdout.splitlines()]
    raw = [path.read_bytes() for path in made]
    if "first" in options:
        raw[0] += bytes(-len(raw[0]) % 32)
    assert [sha256(shard).hexdigest() for shard in raw] == THEIRS[options]


def test_the_engine_says_the_same(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    first = split(stories, tmp_path / "s", max_tensors=20, bare_first=True)[0]
    options = {"temperature": 0.0, "max_tokens": 12}
    texts = []
    for path in (stories, first.path):
        with llamina.load(path, threads=1) as engine:
            texts.append(engine.generate("Once upon", **options).text)  # type: ignore[arg-type]
    assert texts[0] == texts[1] != ""


def test_limits(stories: Path) -> None:
    """As llama-gguf-split shares them out: sizes with their padding, metadata not counted."""
    counts = [shard.tensors for shard in plan_split(stories)]
    assert counts == [48]
    assert [s.tensors for s in plan_split(stories, max_tensors=20)] == [20, 20, 8]
    assert [s.tensors for s in plan_split(stories, max_tensors=20, bare_first=True)] == [0, 20, 20, 8]
    assert [s.tensors for s in plan_split(stories, max_tensors=48)] == [48]
    with GGUF.open(stories) as file:
        sizes = [tensor.nbytes for tensor in file.tensors.values()]  # of 256 bytes or more: no padding
    first = sum(sizes[:5])
    assert plan_split(stories, max_bytes=first)[0].tensors == 5
    assert plan_split(stories, max_bytes=first - 1)[0].tensors == 4
    assert [s.bytes for s in plan_split(stories, max_bytes=1)] == sizes, "a tensor that is larger has its own"
    assert sum(s.bytes for s in plan_split(stories, max_bytes=100_000)) == sum(sizes)
    for limits in ({"max_tensors": 0}, {"max_bytes": 0}, {"max_tensors": 1, "max_bytes": 1}):
        with pytest.raises(RequestError, match="give"):
            plan_split(stories, **limits)


def test_dry_run_and_default_names(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(stories.read_bytes())
    result = invoke("split", path, "--split-max-tensors", "30", "--dry-run")
    assert result.stdout.splitlines()[1].split()[:2] == [str(tmp_path / "m-00001-of-00002.gguf"), "30"]
    told = json.loads(invoke("split", path, "--max-size", "100K", "--dry-run", "--json").stdout)
    assert sum(shard["tensors"] for shard in told) == 48 and [p.name for p in tmp_path.iterdir()] == ["m.gguf"]
    result = invoke("split", path, "--max-size", "100K", "--dry-run")
    assert "2 shards are larger, as one tensor of theirs is (m-0000" in result.stderr
    assert invoke("split", path, "--max-tensors", 30).stdout.splitlines() == [
        str(tmp_path / f"m-0000{n}-of-00002.gguf") for n in (1, 2)
    ]


def test_mistakes(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    (tmp_path / "s-00002-of-00003.gguf").write_bytes(b"precious")
    for arguments, message in {
        ("--max-tensors", 20): "s-00002-of-00003.gguf exists: choose another name",
        ("--max-tensors", 20, "--max-size", "1G"): "give either --max-size or --max-tensors",
        ("--max-size", "much"): "'much' is not a size such as 500M or 2G",
        ("--max-size", "0"): "max_bytes is 0: give 1 or more",
        ("--max-tensors", 0): "0 is not in the range",
    }.items():
        result = invoke("split", stories, out, *arguments)
        assert result.exit_code == 2 and message in result.stderr, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s-00002-of-00003.gguf"]
    assert invoke("split", stories, out, "--max-tensors", 20, "--force").exit_code == 0
    assert equal(tmp_path / "s-00001-of-00003.gguf", stories)
    assert invoke("split", tmp_path / "none.gguf", out).exit_code == 3
    result = invoke("merge", stories, tmp_path / "whole.gguf")
    assert result.exit_code == 2 and "is not one of several shards" in result.stderr
    result = invoke("merge", tmp_path / "s-00001-of-00003.gguf", tmp_path / "s-00002-of-00003.gguf", "--force")
    assert result.exit_code == 2 and "would be replaced by itself" in result.stderr
    (tmp_path / "s-00003-of-00003.gguf").unlink()
    with pytest.raises(ModelNotFound, match="00003-of-00003"):
        merge(tmp_path / "s-00001-of-00003.gguf", tmp_path / "whole.gguf")
    assert not (tmp_path / "whole.gguf").exists()


def test_an_end_half_way_leaves_nothing(stories: Path, tmp_path: Path) -> None:
    """Nor a mixture of old shards and new ones."""
    shards = split(stories, tmp_path / "s", max_tensors=20)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(name: str, done: int, total: int) -> None:
        if name.startswith("s-00003") or name == "whole.gguf":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split(stories, tmp_path / "s", max_tensors=20, overwrite=True, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        merge(shards[0].path, tmp_path / "whole.gguf", progress=stop)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_shards_may_be_deleted(invoke: Invoke, stories: Path, tmp_path: Path) -> None:
    shards = split(stories, tmp_path / "s", max_tensors=20)
    assert invoke("merge", shards[1].path, tmp_path / "whole.gguf", "--delete-splits").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["whole.gguf"]


def test_a_merged_file_of_llama_cpp(tmp_path: Path, stories: Path) -> None:
    """llama-gguf-split leaves the keys of shards in the merged file, with a count of 0: it can be split again."""
    with GGUF.open(stories) as file:
        left = {"split.no": 0, "split.count": 0, "split.tensors.count": 48}
        write(tmp_path / "m.gguf", file.metadata | left, file.tensors.values(), metadata_types=file.metadata_types)
    shards = split(tmp_path / "m.gguf", max_tensors=20)
    assert equal(shards[0].path, stories)
    with pytest.raises(RequestError, match="there is nothing to merge"):
        merge(tmp_path / "m.gguf", tmp_path / "again.gguf")


def test_an_alignment_of_its_own(tmp_path: Path) -> None:
    tensors = [(f"t{i}", (3,), tensor_type("F32"), bytes([i] * 12)) for i in range(5)]
    write(tmp_path / "m.gguf", {"general.architecture": "none", "general.alignment": 128}, tensors)
    shards = split(tmp_path / "m.gguf", max_tensors=2)
    assert equal(shards[0].path, tmp_path / "m.gguf")
    assert (
        sha256(merge(shards[2].path, tmp_path / "n.gguf").read_bytes()).digest()
        == sha256((tmp_path / "m.gguf").read_bytes()).digest()
    )


def test_memory(tmp_path: Path) -> None:
    """Less than one tensor is in memory at a time."""
    size = 1 << 26
    tensors = [(f"t{i}", (size // 4,), tensor_type("F32"), lambda: iter([bytes(size // 16)] * 16)) for i in range(3)]
    write(tmp_path / "m.gguf", {"general.architecture": "none"}, tensors)
    tracemalloc.start()
    shards = split(tmp_path / "m.gguf", max_tensors=1)
    merge(shards[0].path, tmp_path / "n.gguf")
    edit(tmp_path / "n.gguf", set={"a": 1}, in_place=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 4 and len(shards) == 3
