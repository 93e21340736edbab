"""Whether a GGUF file is sound: its structure, its scales, its hashes, and the tensors that its architecture needs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llamina.adapters import read_adapter
from llamina.errors import LlaminaError, ModelFileError, RequestError, UnsupportedModel
from llamina.files.architecture import Needs, needs
from llamina.files.edit import edit
from llamina.files.hashes import (
    TENSOR_HASHES,
    file_sha256,
    hash_file,
    listed_hashes,
    of_file,
    read_manifest,
    tensor_hash,
)
from llamina.gguf import GGUF, Kind, ValueType, open_model
from llamina.gguf.writer import Progress, check_output
from llamina.hub.checksums import known_sha256
from llamina.hub.shards import shards_of
from llamina.quant.scales import count_not_finite
from llamina.tokenizer.vocabulary import Vocabulary

SHOWN = 8  # names in a message


@dataclass(slots=True)
class Report:
    """What was found. The file is sound if there are no mistakes; notes say what is unusual.

    `sha256` are the hashes of the files that were computed, by name; `hashes` is how many of tensors and files were
    compared with what a manifest or the file itself says.
    """

    path: Path
    tensors: int = 0
    bytes: int = 0
    mistakes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    sha256: dict[str, str] = field(default_factory=dict)
    hashes: int = 0

    @property
    def sound(self) -> bool:
        return not self.mistakes


def verify(
    path: str | os.PathLike[str],
    *,
    values: bool = True,
    hashes: bool = True,
    sha256: bool = False,
    manifest: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a model, all shards of it, and return what is wrong with it.

    Always: the header, that tensors are aligned, inside the file and do not overlap, that the vocabulary can be read,
    and that the architecture has the tensors it asks for. `values`: that no scale or value is NaN or infinite.
    `hashes`: those that the file lists in `general.tensor_hashes`. `sha256`: the SHA-256 of the files against the
    catalogue's or the Hugging Face Hub's, one of which has to know it. `manifest`: the lines of that file, as
    `hash_file` makes them. Raises ModelNotFound, and RequestError for a manifest that has nothing of these files; what
    is wrong with the file itself is in the report.
    """
    report = Report(Path(path))
    lines = None if manifest is None else read_manifest(manifest)
    try:
        file = open_model(path)
        _check_header(file, report)
        if hashes:
            _check_listed(file, report, progress)
    except (ModelFileError, UnsupportedModel) as error:
        report.mistakes.append(str(error))
        return report
    if values:
        _check_values(file, report, progress)
    shards = shards_of(report.path)
    if lines is not None:
        found = [(shard, of_file(lines, shard)) for shard in shards]
        if not any(about for _, about in found):
            raise RequestError(
                f"{manifest} has no hash of {report.path.name}: give the manifest of this file", "manifest"
            )
        for shard, about in found:
            report.mistakes += _unlike(shard, {(line.kind, line.tensor): line.digest for line in about}, progress)
            report.hashes += len(about)
    for shard in shards if sha256 else ():
        _check_file(shard, report, progress)
    return report


def write_hashes(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write a copy of a file that lists the BLAKE3 hashes of the model's tensors in `general.tensor_hashes`.

    Of a split model that is the first shard, with the hashes of all. Raises as `edit` does.
    """
    check_output(Path(out), overwrite, path)
    with open_model(path) as file:
        hashes = _hashes(file, list(file.tensors), progress)
        listed = [f"{name}:{digest}" for name, digest in hashes]
    kinds = {TENSOR_HASHES: Kind(ValueType.ARRAY, ValueType.STRING)}
    return edit(path, out, set={TENSOR_HASHES: listed}, types=kinds, overwrite=overwrite, progress=progress)


def _check_header(file: GGUF, report: Report) -> None:
    report.tensors = len(file.tensors)
    report.bytes = sum(tensor.nbytes for tensor in file.tensors.values())
    _check_vocabulary(file, report)
    known = needs(file)
    if str(file.metadata.get("general.type")) == "adapter":
        try:
            read_adapter(report.path, {})
        except LlaminaError as error:
            report.mistakes.append(str(error))
    elif known is None:
        what, kind = (file.metadata.get(f"general.{key}") for key in ("architecture", "type"))
        report.notes.append(
            f"it holds no model and no encoder known here (architecture {what}, type {kind}): its tensors were not "
            "compared with what one asks for"
        )
    else:
        _check_needs(known, report)


def _check_vocabulary(file: GGUF, report: Report) -> None:
    if "tokenizer.ggml.tokens" not in file.metadata:
        return
    try:
        Vocabulary.read(file.metadata)
    except UnsupportedModel as error:
        report.notes.append(str(error))
    except LlaminaError as error:
        report.mistakes.append(str(error))


def _check_needs(known: Needs, report: Report) -> None:
    report.missing, report.unused = known.missing, known.unused
    if known.reason is not None:
        report.mistakes.append(known.reason)
    if known.missing:
        report.mistakes.append(f"it lacks {_names(known.missing)}, which the architecture asks for")
    if known.unused:
        report.notes.append(f"{len(known.unused)} of its tensors are not used: {_names(known.unused)}")


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _check_listed(file: GGUF, report: Report, progress: Progress | None) -> None:
    listed = listed_hashes(file)
    here = [name for name in listed if name in file.tensors]
    report.hashes += len(here)
    report.mistakes += [f"{TENSOR_HASHES} has {name}, which the file does not" for name in listed if name not in here]
    for name, digest in _hashes(file, here, progress):
        if digest != listed[name]:
            report.mistakes.append(f"{name} has other data than {TENSOR_HASHES} says")


def _hashes(file: GGUF, names: list[str], progress: Progress | None) -> Iterator[tuple[str, str]]:
    """Yield the names of tensors and the hashes of their data."""
    total, done = sum(file.tensors[name].nbytes for name in names), 0
    for name in names:
        yield name, tensor_hash(file.tensors[name])
        done += file.tensors[name].nbytes
        if progress is not None:
            progress("hashes of tensors", done, total)


def _check_values(file: GGUF, report: Report, progress: Progress | None) -> None:
    done = 0
    for tensor in file.tensors.values():
        if count := count_not_finite(tensor.data, tensor.type):
            what = "values" if tensor.type.block == 1 else "blocks with scales"
            report.mistakes.append(f"{tensor.name} has {count} {what} that are NaN or infinite")
        done += tensor.nbytes
        if progress is not None:
            progress("all tensors", done, report.bytes)


def _unlike(path: Path, expected: dict[tuple[str, str | None], str], progress: Progress | None) -> Iterator[str]:
    """Yield what differs between a file and the lines of a manifest, by kind and tensor."""
    kinds = sorted({kind for kind, _ in expected} - {"file"})
    tensors = any(tensor is not None for _, tensor in expected)
    actual = {
        (line.kind, line.tensor): line.digest for line in hash_file(path, kinds, tensors=tensors, progress=progress)
    }
    for (kind, tensor), digest in expected.items():
        what = f"the tensor {tensor}" if tensor else "the file" if kind == "file" else "the data of all tensors"
        if (kind, tensor) not in actual:
            yield f"the manifest has {tensor} of {path.name}, which the file does not"
        elif actual[kind, tensor] != digest:
            yield f"{path.name}: {what} has another {'sha256' if kind == 'file' else kind} than in the manifest"


def _check_file(path: Path, report: Report, progress: Progress | None) -> None:
    digest, known = file_sha256(path, progress), known_sha256(path)
    report.sha256[path.name] = digest
    if known is None:
        report.mistakes.append(
            f"nobody knows which SHA-256 {path.name} should have, neither the catalogue nor the Hub's cache: compare "
            "it with a manifest, or leave this out"
        )
    elif known[0] != digest:
        report.mistakes.append(f"{path.name} has another SHA-256 than {known[1]}'s")
