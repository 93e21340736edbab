"""Hashes of files and tensors, in lines as llama-gguf-hash prints them; manifests are made of these lines.

sha256    7dd6…  model.gguf:blk.0.attn_q.weight     the data of a tensor
sha256    a1b2…  model.gguf                         the data of all tensors, in the order of the file
90d7…  model.gguf                                   the file itself, as sha256sum prints it
"""

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from llamina.errors import ModelFileError, ModelNotFound, RequestError
from llamina.gguf import GGUF, Tensor
from llamina.gguf.types import Bytes
from llamina.gguf.writer import Progress

HASHES = ("sha256", "sha1", "xxh64", "blake3", "uuid")
NAMESPACE = uuid.UUID("ef001206-dadc-5f6d-a15f-3359e577d4e5")  # llama.cpp's, of UUIDs of version 5
CHUNK = 1 << 22
FILE = "file"  # the kind of a line of sha256sum
TENSOR_HASHES = "general.tensor_hashes"  # metadata: "NAME:HEX" of each tensor, by BLAKE3


class Digest(Protocol):
    """What hashlib's objects do."""

    def update(self, data: Any, /) -> object: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Hash:
    """A line: the kind of hash (`file` for the SHA-256 of the whole file), of a tensor's data, or of all tensors'."""

    kind: str
    digest: str
    file: str
    tensor: str | None = None

    def __str__(self) -> str:
        name = self.file if self.tensor is None else f"{self.file}:{self.tensor}"
        return f"{self.digest}  {name}" if self.kind == FILE else f"{self.kind:8}  {self.digest}  {name}"


def hash_file(
    path: str | os.PathLike[str],
    kinds: Sequence[str] = ("sha256",),
    *,
    tensors: bool = True,
    progress: Progress | None = None,
) -> Iterator[Hash]:
    """Yield the hashes of each tensor (unless not wanted), of all tensors' data, and the SHA-256 of the file.

    `kinds` are of HASHES; a UUID is of all tensors alone. `progress` is told (name, bytes done, bytes in all). Raises
    ModelNotFound, ModelFileError or RequestError.
    """
    if unknown := [kind for kind in kinds if kind not in HASHES]:
        raise RequestError(f"{unknown[0]!r} is no hash: must be one of {', '.join(HASHES)}", "kinds")
    name = Path(path).name
    with GGUF.open(path) as file:
        size = os.path.getsize(path)
        count = _Count(name, sum(t.nbytes for t in file.tensors.values()) + size, progress)
        whole = {kind: _digest(kind) for kind in kinds}
        for tensor in file.tensors.values():
            own = {kind: _digest(kind) for kind in kinds if kind != "uuid"} if tensors else {}
            for chunk in _chunks(tensor.data):
                for digest in (*own.values(), *whole.values()):
                    digest.update(chunk)
                count(len(chunk))
            yield from (Hash(kind, digest.hexdigest(), name, tensor.name) for kind, digest in own.items())
        yield from (Hash(kind, _text(kind, digest), name) for kind, digest in whole.items())
    yield Hash(FILE, _file_digest(Path(path), count), name)


def tensor_hash(tensor: Tensor, kind: str = "blake3") -> str:
    """The hash of a tensor's data, in hexadecimal."""
    digest = _digest(kind)
    for chunk in _chunks(tensor.data):
        digest.update(chunk)
    return digest.hexdigest()


def listed_hashes(file: GGUF) -> dict[str, str]:
    """The BLAKE3 hashes of tensors in `general.tensor_hashes`, by name. Raises ModelFileError if they are none."""
    listed = file.metadata.get(TENSOR_HASHES, [])
    found: dict[str, str] = {}
    for entry in listed if isinstance(listed, list) else [listed]:
        name, _, digest = entry.rpartition(":") if isinstance(entry, str) else ("", "", "")
        if not name or len(digest) != 64 or set(digest.lower()) - set("0123456789abcdef"):
            raise ModelFileError(f"{file.source}: {TENSOR_HASHES} has {entry!r}, which is not NAME:HEX of BLAKE3")
        found[name] = digest.lower()
    return found


def read_manifest(path: str | os.PathLike[str]) -> list[Hash]:
    """The lines of a manifest: llama-gguf-hash's and sha256sum's. Raises ModelNotFound or RequestError."""
    try:
        lines = Path(path).read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        raise ModelNotFound(f"{path}: no such file: check the path of the manifest") from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error}", "manifest") from error
    return [
        _parse(line, f"{path}: line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]


def _parse(line: str, where: str) -> Hash:
    kind, _, rest = line.partition(" ")
    if kind in HASHES:
        digest, _, name = rest.strip().partition(" ")
    else:
        kind, digest, name = FILE, kind, rest.removeprefix(" ").removeprefix("*")
    if not name.strip() or len(digest) < 16 or set(digest.lower()) - set("0123456789abcdef-"):
        raise RequestError(f"{where} is {line[:60]!r}: must be a line of `llamina hash` or sha256sum", "manifest")
    return Hash(kind, digest.lower(), name.strip())


def of_file(lines: Iterable[Hash], path: Path) -> list[Hash]:
    """The lines that are about a file of this name, in whatever folder, with the names of tensors told apart."""
    name = re.compile(rf"(?:.*?[/\\])?{re.escape(path.name)}(?::(?P<tensor>.+))?", re.DOTALL)
    found = ((line, name.fullmatch(line.file)) for line in lines)
    return [Hash(line.kind, line.digest, path.name, match["tensor"]) for line, match in found if match]


class _Count:
    """Adds up bytes, and tells of them."""

    def __init__(self, name: str, total: int, progress: Progress | None) -> None:
        self._name, self._total, self._progress, self._done = name, total, progress, 0

    def __call__(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(self._name, self._done, self._total)


def _digest(kind: str) -> Digest:
    if kind == "xxh64":
        import xxhash

        return xxhash.xxh64()
    if kind == "blake3":
        import blake3

        return blake3.blake3()
    return hashlib.sha1(NAMESPACE.bytes) if kind == "uuid" else hashlib.new(kind)


def _text(kind: str, digest: Digest) -> str:
    found = digest.hexdigest()
    return str(uuid.UUID(hex=found[:32], version=5)) if kind == "uuid" else found


def _chunks(data: Bytes) -> Iterator[Bytes]:
    yield from (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))


def file_sha256(path: Path, progress: Progress | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return _file_digest(path, _Count(path.name, path.stat().st_size, progress))


def _file_digest(path: Path, count: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            count(len(chunk))
    return digest.hexdigest()
