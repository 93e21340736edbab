"""The encoder of pictures that belongs to a model: a second file, opened and compiled when the first picture comes."""

import os
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from llamina.backends import Backend, Progress
from llamina.backends import backend as make_backend
from llamina.errors import ModelFileError, RequestError, UnsupportedModel
from llamina.gguf import GGUF, open_model
from llamina.hub.hf_cache import folders_of
from llamina.hub.shards import is_encoder

if TYPE_CHECKING:
    from llamina.vision import EncodedPicture, EncoderRunner, Picture

HOSTS = ("cpu", "reference")  # backends that have kernels for all that encoders do
MISSING = "this model reads text only: for one that sees, load its mmproj file too (mmproj=FILE, or beside the model)"


class PictureEncoder:
    """Without a path, the mmproj file beside the model is taken, if there is one. `width` is that of the model's rows.

    Pictures at web addresses are fetched from `hosts` alone.
    """

    def __init__(
        self,
        model: str,
        path: "str | os.PathLike[str] | None",
        backend: Backend,
        width: int,
        progress: Progress | None = None,
        hosts: Iterable[str] = (),
    ) -> None:
        self.hosts = frozenset(host.lower() for host in hosts)
        self._model, self._backend, self._width, self._progress = model, backend, width, progress
        self._lock = Lock()
        self._runner: EncoderRunner | None = None
        if path is not None:
            self._runner = self._open(Path(path))

    @property
    def there(self) -> bool:
        """Whether the model can be shown pictures, as far as can be told without opening the encoder."""
        return self._runner is not None or encoder_beside(Path(self._model)) is not None

    def encode(self, picture: "Picture") -> "EncodedPicture":
        """What stands for a picture in the prompt. Raises RequestError if the model has no encoder."""
        return self.ready().encode(picture)

    def ready(self) -> "EncoderRunner":
        """The encoder. Raises RequestError if the model has none, UnsupportedModel if it is of an unknown kind."""
        with self._lock:
            if self._runner is None:
                if (found := encoder_beside(Path(self._model))) is None:
                    raise RequestError(MISSING, "messages")
                self._runner = self._open(found)
            return self._runner

    def _open(self, path: Path) -> "EncoderRunner":
        from llamina.engine.runner.load import weights_of
        from llamina.vision import EncoderRunner, build

        file = open_model(path)
        host = self._backend if self._backend.name in HOSTS else make_backend("cpu")
        runner = EncoderRunner(build(file.metadata, weights_of(file)), host, self._progress)
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


def encoder_beside(model: Path) -> Path | None:
    """The mmproj file in the model's folder; of several, the one whose name begins most like the model's.

    A model that was pulled from a repository may have it in the folders above, up to the repository's own.
    """
    if not model.is_file():
        return None
    for folder in folders_of(model):
        found = [path for path in sorted(folder.glob("*.gguf")) if is_encoder(path.name) and _sees(path)]
        if found:
            return max(found, key=lambda path: _alike(_plain(path.name), _plain(model.name)))
    return None


def _alike(one: str, other: str) -> int:
    """How many characters two names have in common at their beginning."""
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


def _plain(name: str) -> str:
    """A file's name in lower case, without the word that all of them have."""
    return name.lower().replace("mmproj", "").strip("-_.")


def _sees(path: Path) -> bool:
    try:
        return GGUF.open(path).metadata.get("clip.has_vision_encoder") is True
    except (ModelFileError, OSError):
        return False
