"""An encoder made ready to run: its plan compiled, and what it made of the last pictures or sounds."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.backends import Backend, Capacity, Program, Progress
from llamina.errors import ContextTooLong
from llamina.media.encoder import Encoder, Medium, Patches, Stem
from llamina.ops.batch import PAGE, Batch, Span
from llamina.plan import record

KEPT = 256 << 20  # bytes of rows that are kept
LEAST = 256  # rows that there is room for, at the least
PIECE = 1024  # rows that go through a stem at a time
NOUNS = {"vision": "picture", "audio": "sound"}


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """What the encoder made of a tile, or of 30 seconds: rows for the text model, in a grid of columns and rows."""

    values: npt.NDArray[np.float32]
    grid: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """What stands in the prompt for a picture or a sound: texts and rows, in order."""

    parts: tuple[str | Rows, ...]
    key: str  # the same for the same contents and encoder

    @property
    def nbytes(self) -> int:
        return sum(part.values.nbytes for part in self.parts if isinstance(part, Rows))


class Compiled:
    """A forward pass over rows. The program is compiled anew when more of them come than there was room for.

    Room is doubled until it suffices.
    """

    def __init__(self, stem: Stem, backend: Backend, progress: Progress | None = None) -> None:
        self._backend, self._progress = backend, progress
        self._row_width = stem.row_width
        self._plan = record(stem.forward, stem.row_width)
        backend.check(self._plan)
        self._program: Program | None = None
        self._batch = Batch(0, 0, 1, 1)

    @property
    def width(self) -> int:
        """Of a row that comes out."""
        return self._plan.vocab

    def run(self, patches: Patches) -> npt.NDArray[np.float32]:
        """The rows that come out."""
        n = len(patches.tokens)
        program = self._ready(n)
        pages = range(-(-n // PAGE))
        rotary = np.concatenate([np.zeros((1, n), np.int32), patches.places.T])
        span = Span(patches.tokens, 0, pages, 0, patches.outputs, rows=[(0, patches.rows)], rotary=rotary)
        if patches.windows is not None:
            span = span._replace(since=patches.windows[0], until=patches.windows[1])
        return program.launch(self._batch.fill([span])).result().copy()

    def _ready(self, n: int) -> Program:
        """A program with room for n rows."""
        if self._program is None or len(self._batch.tokens) < n:
            room = LEAST
            while room < n:
                room *= 2
            pages = -(-room // PAGE)
            batch = Batch(room, room, 1, pages, self._row_width)
            program = self._backend.compile(self._plan, batch, Capacity(pages, 1, "f32"), self._progress)
            self.close()
            self._program, self._batch = program, batch
        return self._program

    def close(self) -> None:
        """End the backend's threads."""
        if self._program is not None:
            self._program.close()
            self._program = None


class EncoderRunner:
    """Encodes one medium at a time, whoever asks. `name` tells the encoder from others, in the keys of what it made."""

    def __init__(
        self, encoder: Encoder[Any], backend: Backend, progress: Progress | None = None, name: str = ""
    ) -> None:
        self.encoder, self.backend, self.name = encoder, backend, name
        self._whole = Compiled(Stem(encoder.forward, encoder.row_width), backend, progress)
        self._stems = [Compiled(stem, backend, progress) for stem in encoder.stems]
        self._kept: OrderedDict[str, Encoded] = OrderedDict()
        self._lock = Lock()

    @property
    def width(self) -> int:
        """Of a row, which must be that of the text model's embeddings."""
        return self._whole.width

    def encode(self, medium: Medium, most: int | None = None) -> Encoded:
        """What stands for it in the prompt. The same contents are encoded once, while there is room to keep them.

        Raises ContextTooLong for more than `most` rows, as far as these can be told, before much is computed.
        """
        with self._lock:
            if medium.key in self._kept:
                self._kept.move_to_end(medium.key)
                return self._kept[medium.key]
            self._check(self.encoder.least_rows(medium), most)
            cut = self.encoder.parts(medium)
            self._check(sum(self.encoder.least_rows_of(part) for part in cut if not isinstance(part, str)), most)
            parts = tuple(part if isinstance(part, str) else self._run(part) for part in cut)
            found = self._kept[medium.key] = Encoded(parts, f"{self.name}-{medium.key}")
            while len(self._kept) > 1 and sum(kept.nbytes for kept in self._kept.values()) > KEPT:
                self._kept.popitem(last=False)
            return found

    def _check(self, least: int, most: int | None) -> None:
        if most is not None and least > most:
            fact = f"a {NOUNS[self.encoder.kind]} becomes {least} tokens and the context holds {most}"
            raise ContextTooLong(f"{fact}: shorten it, or load the model with a larger context", "messages")

    def _run(self, tile: npt.NDArray[Any]) -> Rows:
        for i in range(len(self._stems)):
            tile = self.encoder.stemmed(i, tile, partial(self._in_pieces, self._stems[i]))
        patches = self.encoder.patches(tile)
        return Rows(self.encoder.arrange(self._whole.run(patches), patches.grid), patches.grid)

    def _in_pieces(self, stem: Compiled, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What a stem makes of rows, each by itself."""
        found = [stem.run(_alone(rows[start : start + PIECE])) for start in range(0, len(rows), PIECE)]
        return np.concatenate(found)

    def close(self) -> None:
        """End the backend's threads."""
        for compiled in (self._whole, *self._stems):
            compiled.close()


def _alone(rows: npt.NDArray[np.float32]) -> Patches:
    n = len(rows)
    return Patches(np.ascontiguousarray(rows), [0] * n, np.zeros((n, 2), np.int32), list(range(n)), (n, 1))
