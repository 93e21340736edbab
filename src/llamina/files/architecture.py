"""Which tensors a model or an encoder asks for: those that are missing, and those that nothing asks for."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llamina import sound, vision
from llamina.errors import LlaminaError, MissingTensor
from llamina.gguf import GGUF
from llamina.media.encoder import projector_of
from llamina.models import architectures, build
from llamina.ops import Weight
from llamina.plan import record

MOST = 64  # missing tensors that are looked for: each takes another recording
SHORT, LONG = 2, 1 << 20  # contexts beyond those that models are trained for, which may ask for other tensors
_LAYER = re.compile(r"\bblk\.\d+\.")
_ENCODERS: dict[str, Any] = {"vision": vision, "audio": sound}


@dataclass(frozen=True, slots=True)
class Needs:
    """Names of tensors, and what else stands in the way of the model; None if nothing does."""

    missing: tuple[str, ...]
    unused: tuple[str, ...]
    reason: str | None = None


def needs(file: GGUF) -> Needs | None:
    """What a model or an encoder lacks and what it has in vain; None for files that hold none that is known here."""
    runs = _runs(file)
    if not runs or not file.tensors:
        return None
    from llamina.engine.runner.load import weights_of

    missing: list[str] = []
    try:
        tensors = _Asked(weights_of(file, read=_run not in runs))  # encoders look at some tensors as they are built
        while len(missing) < MOST:
            try:
                for run in runs:
                    run(file.metadata, tensors)
            except MissingTensor as error:
                missing.append(error.tensor)
                if not tensors.lend(error.tensor):
                    break
            else:
                break
    except LlaminaError as error:
        return Needs(tuple(missing), (), str(error))
    except MemoryError:
        return Needs(tuple(missing), (), "by its metadata it takes more memory than there is")
    unused = () if missing else tuple(name for name in file.tensors if name not in tensors.asked)
    return Needs(tuple(missing), unused)


def _runs(file: GGUF) -> list[Callable[[dict[str, Any], "_Asked"], None]]:
    """What asks for all tensors that are needed: one function for a model, one for each kind of media it encodes."""
    metadata = file.metadata
    architecture, kind = str(metadata.get("general.architecture")), str(metadata.get("general.type", "model"))
    if architecture != "clip":
        return [_run] if architecture in architectures() and kind == "model" else []
    kinds = [kind for kind in _ENCODERS if metadata.get(f"clip.has_{kind}_encoder") is True]
    known = all(projector_of(metadata, kind) in _ENCODERS[kind].projectors() for kind in kinds)
    return [partial(_encode, kind) for kind in kinds] if known else []


def _encode(kind: str, metadata: dict[str, Any], tensors: "_Asked") -> None:
    """Record all that an encoder computes."""
    encoder = _ENCODERS[kind].build(metadata, tensors)
    for forward, width in ((encoder.forward, encoder.row_width), *((s.forward, s.row_width) for s in encoder.stems)):
        record(forward, width)
    if kind == "vision" and encoder.carried:  # which come with the pixels, outside of the plan
        encoder.learned(1, 1)


def _run(metadata: dict[str, Any], tensors: "_Asked") -> None:
    """Record all that the model can compute, as short and as long contexts ask for it."""
    for context in (SHORT, None, LONG):
        try:
            model = build(metadata, tensors, context)
            record(model.hidden if model.headless else model.forward)
            if any(name.startswith("cls.") for name in tensors):
                record(model.rank)
        except MissingTensor:
            raise
        except LlaminaError:
            if context != LONG:  # a model with learned positions refuses it
                raise


class _Asked(dict[str, Weight]):
    """Weights by name that notes which were asked for."""

    def __init__(self, weights: dict[str, Weight]) -> None:
        super().__init__(weights)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        if found is not None:
            self.asked |= {part.name for part in (found, found.bias, found.scale) if part is not None}
        return found

    def lend(self, name: str) -> bool:
        """Put another layer's tensor in the place of a missing one, to see what else is; whether there is one."""
        stem = _LAYER.sub("blk.", name, count=1)
        for known, weight in list(self.items()):
            if stem != name and known != name and _LAYER.sub("blk.", known, count=1) == stem:
                self[name] = replace(weight, name=name)
                return True
        return False
