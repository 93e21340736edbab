"""The encoders of pictures and of sounds that belong to a model: a second file, opened when the first of them comes."""

import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

from llamina.backends import Backend, Progress
from llamina.backends import backend as make_backend
from llamina.errors import ModelFileError, RequestError, UnsupportedModel
from llamina.gguf import GGUF, fingerprint, open_model
from llamina.hub.hf_cache import folders_of
from llamina.hub.shards import is_encoder

if TYPE_CHECKING:
    from llamina.media import EncoderRunner

Kind = Literal["vision", "audio"]
KINDS: tuple[Kind, ...] = ("vision", "audio")
HOSTS = ("cpu", "reference")  # backends that have kernels for all that encoders do
WAY_OUT = "load its mmproj file too (mmproj=FILE, or beside the model)"
MISSING = {
    "vision": f"this model reads text only: for one that sees, {WAY_OUT}",
    "audio": f"this model does not hear: for one that does, {WAY_OUT}",
}


class MediaEncoder:
    """Of one kind. Without a path, the mmproj file beside the model is taken, if there is one that has the kind.

    `width` is that of the model's rows. Pictures at web addresses are fetched from `hosts` alone.
    """

    def __init__(
        self,
        kind: Kind,
        model: str,
        path: "str | os.PathLike[str] | None",
        backend: Backend,
        width: int,
        progress: Progress | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self.kind = kind
        self.hosts = frozenset(host.lower() for host in hosts)
        self._model, self._path = Path(model), None if path is None else Path(path)
        self._backend, self._width, self._progress = backend, width, progress
        self._lock = Lock()
        self._runner: EncoderRunner | None = None
        if self._path is not None and (kinds_of(self._path) or list(KINDS[:1])) == [kind]:
            self._runner = self._open(self._path)  # what is wrong with it is told at once; of two, one may be of use

    @property
    def there(self) -> bool:
        """Whether the model has such an encoder, as far as can be told without opening it."""
        return self._runner is not None or self._file() is not None

    def ready(self) -> "EncoderRunner":
        """The encoder. Raises RequestError if the model has none, UnsupportedModel if it is of an unknown kind."""
        with self._lock:
            if self._runner is None:
                if (found := self._file()) is None:
                    raise RequestError(MISSING[self.kind], "messages")
                self._runner = self._open(found)
            return self._runner

    def _file(self) -> Path | None:
        if self._path is None:
            return encoder_beside(self._model, self.kind)
        return self._path if self.kind in kinds_of(self._path) else None

    def _open(self, path: Path) -> "EncoderRunner":
        from llamina.engine.runner.load import weights_of
        from llamina.media import EncoderRunner
        from llamina.sound import build as build_sound
        from llamina.vision import build as build_vision

        build = build_vision if self.kind == "vision" else build_sound
        file = open_model(path)
        host = self._backend if self._backend.name in HOSTS else make_backend("cpu")
        encoder = build(file.metadata, weights_of(file))
        runner = EncoderRunner(encoder, host, self._progress, fingerprint(file))
        if runner.width != self._width:
            raise UnsupportedModel(
                f"{path} makes rows of {runner.width} numbers and the model's embeddings have {self._width}: "
                "it belongs to another model"
            )
        return runner

    def close(self) -> None:
        """End its threads."""
        if self._runner is not None:
            self._runner.close()


def encoder_beside(model: Path, kind: Kind = "vision") -> Path | None:
    """The mmproj file of a kind in the model's folder; of several, the one whose name begins most like the model's.

    A model that was pulled from a repository may have it in the folders above, up to the repository's own.
    """
    if not model.is_file():
        return None
    for folder in folders_of(model):
        found = [path for path in sorted(folder.glob("*.gguf")) if is_encoder(path.name) and _has(path, kind)]
        if found:
            return max(found, key=lambda path: _alike(_plain(path.name), _plain(model.name)))
    return None


def kinds_of(path: Path) -> list[Kind]:
    """What an mmproj file has encoders for. Raises ModelFileError if it cannot be read."""
    metadata = GGUF.open(path).metadata
    return [kind for kind in KINDS if metadata.get(f"clip.has_{kind}_encoder") is True]


def _alike(one: str, other: str) -> int:
    """How many characters two names have in common at their beginning."""
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


def _plain(name: str) -> str:
    """A file's name in lower case, without the word that all of them have."""
    return name.lower().replace("mmproj", "").strip("-_.")


def _has(path: Path, kind: Kind) -> bool:
    try:
        return kind in kinds_of(path)
    except (ModelFileError, OSError):
        return False
