"""Which file drafts for a model: the one that is given, or the best of a folder."""

from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import Any

from llamina.errors import LlaminaError, RequestError
from llamina.gguf import GGUF, open_model

TENTH = 0.1  # of the model's size: small enough to be quick, large enough to be right
HALF = 0.5  # nothing larger is worth its time
PADDING = 128  # tokens that one vocabulary may have more than the other


def open_draft(path: Path, file: GGUF) -> GGUF:
    """The draft model at a path, or in a folder the one nearest to a tenth of the model's size."""
    if path.is_dir():
        return _best(path, file)
    found = open_model(path)
    if not same_vocabulary(found.metadata, file.metadata):
        raise RequestError(f"{path} has another vocabulary than the model: it cannot draft for it", "draft")
    return found


def same_vocabulary(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether tokens mean the same; one may have some more at its end, to fill up a matrix."""
    key = "tokenizer.ggml.tokens"
    if a.get("tokenizer.ggml.model") != b.get("tokenizer.ggml.model") or key not in a or key not in b:
        return False
    n = min(len(a[key]), len(b[key]))
    return max(len(a[key]), len(b[key])) - n <= PADDING and list(a[key][:n]) == list(b[key][:n])


def _best(folder: Path, file: GGUF) -> GGUF:
    size = _size(file)
    found = [draft for path in sorted(folder.glob("*.gguf")) if (draft := _opened(path)) is not None]
    fit = [d for d in found if _size(d) <= HALF * size and same_vocabulary(d.metadata, file.metadata)]
    if not fit:
        raise RequestError(
            f"none of the {len(found)} models in {folder} has the model's vocabulary and at most half its size: "
            "name another folder, or a file",
            "draft",
        )
    return min(fit, key=lambda draft: abs(log(_size(draft) / (TENTH * size))))


def _opened(path: Path) -> GGUF | None:
    try:
        return open_model(path)
    except LlaminaError:
        return None  # something else, or damaged: not for us to tell


def _size(file: GGUF) -> int:
    return sum(tensor.nbytes for tensor in file.tensors.values())
