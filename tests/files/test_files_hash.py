"""`llamina hash`: the hashes of gguf-hash, of sha256sum, and of the libraries."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import blake3
import pytest
import xxhash
from click.testing import Result

from llamina.errors import ModelFileError, RequestError
from llamina.files import HASHES, Hash, hash_file
from llamina.files.hashes import of_file, read_manifest
from llamina.gguf import GGUF
from skips import import_peer

Invoke = Callable[..., Result]


def test_the_lines_of_gguf_hash(invoke: Invoke, stories: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script of the gguf package prints SHA-1 and SHA-256 of each tensor, and of all; and a UUID."""
    gguf_hash = import_peer("gguf.scripts.gguf_hash")
    reader = import_peer("gguf").GGUFReader(stories, "r")
    gguf_hash.gguf_hash(reader, stories.name, True, False)
    theirs = capsys.readouterr().out.splitlines()
    ours = invoke("hash", stories, "--type", "sha1", "--type", "sha256", "--type", "uuid").stdout.splitlines()
    assert ours[:-1] == theirs and len(theirs) > 20
    assert ours[-1] == f"{hashlib.sha256(stories.read_bytes()).hexdigest()}  {stories.name}"


def test_hashes_of_the_libraries(stories: Path) -> None:
    found = {(line.kind, line.tensor): line.digest for line in hash_file(stories, HASHES)}
    with GGUF.open(stories) as file:
        data = {name: tensor.data.tobytes() for name, tensor in file.tensors.items()}
    whole = b"".join(data.values())
    assert found["xxh64", None] == xxhash.xxh64(whole).hexdigest()
    assert found["blake3", None] == blake3.blake3(whole).hexdigest()
    for name, raw in data.items():
        assert found["xxh64", name] == xxhash.xxh64(raw).hexdigest()
        assert found["blake3", name] == blake3.blake3(raw).hexdigest()
        assert ("uuid", name) not in found


def test_json_and_fewer_lines(invoke: Invoke, stories: Path) -> None:
    told = json.loads(invoke("hash", stories, "--no-tensors", "--json").stdout)
    assert [line["kind"] for line in told] == ["sha256", "file"] and told[0]["tensor"] is None
    assert len(invoke("hash", stories, "--no-tensors", "--type", "all").stdout.splitlines()) == len(HASHES) + 1
    assert invoke("hash", "nobody").exit_code == 3
    assert invoke("hash", stories, "--type", "md5").exit_code == 2


def test_lines_are_read_as_they_are_written(stories: Path, tmp_path: Path) -> None:
    lines = list(hash_file(stories, HASHES))
    (tmp_path / "m").write_text("".join(f"{line}\n" for line in lines))
    assert of_file(read_manifest(tmp_path / "m"), stories) == lines
    assert of_file(read_manifest(tmp_path / "m"), Path("other.gguf")) == []


@pytest.mark.parametrize(
    ("line", "tensor"),
    [
        ("sha1  da39a3ee5e6b4b0d3255bfef95601890afd80709  some/where/a b.gguf:x:y", "x:y"),
        (r"sha1  da39a3ee5e6b4b0d3255bfef95601890afd80709  C:\models\a b.gguf:x", "x"),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709 *a b.gguf", None),
    ],
)
def test_names_in_manifests(line: str, tensor: str | None, tmp_path: Path) -> None:
    (tmp_path / "m").write_text(f"\n{line}\n")
    (found,) = of_file(read_manifest(tmp_path / "m"), Path("elsewhere/a b.gguf"))
    kind = "sha1" if line.startswith("sha1") else "file"
    assert found == Hash(kind, "da39a3ee5e6b4b0d3255bfef95601890afd80709", "a b.gguf", tensor)
    assert of_file(read_manifest(tmp_path / "m"), Path("b.gguf")) == []


def test_progress_and_refusals(stories: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    list(hash_file(stories, progress=lambda *news: told.append(news)))
    assert told[-1][1] == told[-1][2] > stories.stat().st_size and told[0][0] == stories.name
    with pytest.raises(RequestError, match="'md5' is no hash"):
        list(hash_file(stories, ["md5"]))
    (tmp_path / "no.gguf").write_bytes(b"no")
    with pytest.raises(ModelFileError):
        list(hash_file(tmp_path / "no.gguf"))
