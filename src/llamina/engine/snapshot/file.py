"""Snapshots as files, and what is in one."""

import os
from dataclasses import dataclass
from pathlib import Path

from llamina.engine.delta import FinishReason
from llamina.engine.snapshot.format import VERSION, Snapshot
from llamina.errors import SnapshotError


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a snapshot holds, without an engine."""

    model: str  # the name in its file
    fingerprint: str  # of the model's file
    version: int  # of the format
    nbytes: int
    kv_type: str
    prompt_tokens: int
    generated_tokens: int
    computed_tokens: int  # whose keys and values are in it
    finish_reason: FinishReason | None  # None: it goes on when it is resumed
    adapters: tuple[str, ...]
    messages: int | None  # of a conversation (`Session.save`); None: it is a request


def snapshot_info(snapshot: bytes | str | os.PathLike[str]) -> SnapshotInfo:
    """What a snapshot holds, given as its bytes or their file. Raises SnapshotError if it is none, or is damaged."""
    data = contents(snapshot)
    header = Snapshot.unpack(data).header
    request = header["request"]
    return SnapshotInfo(
        model=str(header["name"]),
        fingerprint=str(header["model"]),
        version=VERSION,
        nbytes=len(data),
        kv_type=str(header["layout"][0]),
        prompt_tokens=len(request["prompt"]),
        generated_tokens=len(request["generated"]),
        computed_tokens=int(header["computed"]),
        finish_reason=request["finish_reason"],
        adapters=tuple(request["asked"]["adapters"]),
        messages=len(header["messages"]) if "messages" in header else None,
    )


def contents(snapshot: bytes | str | os.PathLike[str]) -> bytes:
    """The bytes themselves, or those of the file of that name. Raises SnapshotError if it cannot be read."""
    return bytes(snapshot) if isinstance(snapshot, bytes | bytearray | memoryview) else read_file(snapshot)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Raises SnapshotError if there is no such file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SnapshotError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """A file that is there is replaced as a whole. Raises SnapshotError if it cannot be written."""
    part = Path(f"{os.fspath(path)}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SnapshotError(f"{os.fspath(path)} cannot be written: {error.strerror}") from error
