"""Log-probabilities of a text by a model, in 16 bits each, and files of them as llama-perplexity writes them.

`_logits_`, int32 window size, vocabulary, number of windows; int32 tokens of all windows; then a row for each scored
token: float32 step and least log-probability, uint16 steps above it for each token of the vocabulary, padded to an even
number. Log-probabilities more than 16 below the largest are the least one.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from llamina.errors import ModelFileError, ModelNotFound
from llamina.gguf.writer import replacing

MAGIC = b"_logits_"
REACH = 16  # of logits below the largest
STEPS = 65535
Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.uint16]


def rounded(logits: Floats) -> Rows:
    """Rows of logits [rows, vocabulary] as rows of log-probabilities in 16 bits, with their steps in front."""
    largest = logits.max(1, keepdims=True)
    least = np.maximum(logits.min(1, keepdims=True), largest - REACH)
    sums = np.log(np.exp(logits - largest).sum(1, keepdims=True, dtype=np.float64)).astype(np.float32)
    step = (largest - least) / np.float32(STEPS)
    count, vocab = logits.shape
    rows = np.zeros((count, 4 + vocab + vocab % 2), np.uint16)
    rows[:, :4] = np.hstack([step, least - largest - sums]).view(np.uint16)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.rint((logits - least) * (1 / step))
    rows[:, 4 : 4 + vocab] = np.where((logits > least) & (step > 0), steps, 0)
    return rows


def log_probabilities(rows: Rows, vocab: int) -> Floats:
    """What `rounded` made of logits: log-probabilities [rows, vocabulary]."""
    step, least = np.ascontiguousarray(rows[:, :4]).view(np.float32).T
    found: Floats = step[:, None] * rows[:, 4 : 4 + vocab].astype(np.float32) + least[:, None]
    return found


class SavedLogits:
    """A file of log-probabilities: the tokens of its windows, and rows of each when they are asked for."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises ModelNotFound or ModelFileError."""
        self.path = Path(path)
        try:
            self._data = np.memmap(self.path, np.uint8, "r")
        except FileNotFoundError:
            raise ModelNotFound(f"{path}: no such file: check the path") from None
        except ValueError:
            raise ModelFileError(f"{path} is empty: make it again") from None
        if bytes(self._data[:8]) != MAGIC or len(self._data) < 20:
            raise ModelFileError(f"{path} holds no logits: give a file that --save-logits wrote")
        self.size, self.vocab, count = struct.unpack("<3i", self._data[8:20].tobytes())
        width = 4 + self.vocab + self.vocab % 2
        self._shape = (self.size - 1 - self.size // 2, width)
        self._start = 20 + 4 * count * self.size
        if min(self.size, self.vocab, count) < 1 or len(self._data) != self._start + 2 * count * width * self._shape[0]:
            raise ModelFileError(
                f"{path} has {len(self._data)} bytes, which is not what its header says: make it again"
            )
        tokens = self._data[20 : self._start].view("<i4").reshape(count, self.size)
        self.windows: list[list[int]] = tokens.tolist()

    def rows(self, index: int) -> Rows:
        """The rows of a window."""
        nbytes = 2 * self._shape[0] * self._shape[1]
        start = self._start + index * nbytes
        return self._data[start : start + nbytes].view("<u2").reshape(self._shape)


@contextmanager
def saving(path: Path, windows: Sequence[Sequence[int]], vocab: int) -> Iterator[BinaryIO]:
    """A file to write the windows' rows to, which appears when the block ends."""
    with replacing(path) as file:
        file.write(MAGIC + struct.pack("<3i", len(windows[0]), vocab, len(windows)))
        file.write(np.array(windows, "<i4").tobytes())
        yield file


def is_saved(path: Path) -> bool:
    """Whether a file has saved logits in it."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC
