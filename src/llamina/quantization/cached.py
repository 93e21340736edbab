"""Models quantized when they are loaded: a copy in fewer bits is made once, and kept in the cache."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from llamina.gguf import GGUF, fingerprint, open_model
from llamina.places import cache_dir
from llamina.quantization.imatrix import Imatrix
from llamina.quantization.types import Options, file_type
from llamina.quantization.write import plan, quantize

MADE_BY = 1  # counted up when the same options make other bytes
Progress = Callable[[str, int, int], None]


def quantized_copy(
    file: GGUF,
    type: str,
    tensors: Mapping[str, str] | None = None,
    *,
    imatrix: str | os.PathLike[str] | None = None,
    requantize: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    compiling: Progress | None = None,
) -> GGUF:
    """The model in another type, from the cache if it was made before. Its `source` is still the original's.

    `tensors` are types of some tensors, by regular expressions that are found in their names; `imatrix` and
    `requantize` are those of `quantize`. Copies are known by the contents of the model and of the importance matrix,
    the type and the tensors; one appears when it is complete, whoever makes it. Raises as `quantize` does: for a model
    that is quantized already unless `requantize` is set, and for types that need importances.
    """
    mix, overrides = file_type(type), tuple((tensors or {}).items())
    options = Options(overrides)
    known = None if imatrix is None else Imatrix.read(imatrix)
    plan(file, mix, imatrix=known, options=options, requantize=requantize)  # refuses, also if there is a copy
    path = copy_path(file, mix, overrides, None if imatrix is None else Path(imatrix))
    if not path.exists():
        from filelock import FileLock

        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / ".lock"):  # another process may be at it
            if not path.exists():
                quantize(
                    file, path, mix, imatrix=known, options=options, requantize=requantize, threads=threads,
                    progress=progress, compiling=compiling,
                )  # fmt: skip
    return replace(open_model(path), source=file.source)


def copies() -> Path:
    """The folder of all copies."""
    return cache_dir() / "quantized"


def copy_path(file: GGUF, mix: str, overrides: tuple[tuple[str, str], ...], imatrix: Path | None = None) -> Path:
    """Where the copy of a model is, or will be."""
    importances = [] if imatrix is None else [hashlib.blake2b(imatrix.read_bytes(), digest_size=8).hexdigest()]
    key = json.dumps([MADE_BY, fingerprint(file), mix, overrides, *importances])
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    return copies() / f"{Path(os.path.basename(file.source)).stem}-{mix}-{digest}.gguf"
