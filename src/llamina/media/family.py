"""The family of an mmproj file's projector: a file of the same name, or of another that it shares."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from llamina.errors import UnsupportedModel
from llamina.media.encoder import projector_of

PLURALS = {"vision": "pictures", "audio": "sounds"}


def names(families: ModuleType, aliases: Mapping[str, str]) -> list[str]:
    """Every projector that has a file among the families, by itself or with others."""
    return sorted([*aliases, *(module.name for module in iter_modules(families.__path__))])


def about(projector: str, families: ModuleType, aliases: Mapping[str, str]) -> str:
    """What a projector's family covers, in a sentence."""
    family = import_module(f"{families.__name__}.{aliases.get(projector, projector)}")
    return str(family.__doc__).partition("\n")[0]


def family_of(kind: str, metadata: Mapping[str, Any], families: ModuleType, aliases: Mapping[str, str]) -> Any:
    """The class of the encoder of a kind (`vision`, `audio`) that an mmproj file describes.

    Raises UnsupportedModel for one that is not known here.
    """
    architecture = metadata.get("general.architecture")
    if architecture != "clip":
        raise UnsupportedModel(f"general.architecture is {architecture!r}: an mmproj file has 'clip'")
    name = projector_of(metadata, kind)
    if metadata.get(f"clip.has_{kind}_encoder") is not True or name not in names(families, aliases):
        known = ", ".join(names(families, aliases))
        raise UnsupportedModel(f"the file has the projector {name!r}: {PLURALS[kind]} are encoded for {known}")
    return import_module(f"{families.__name__}.{aliases.get(name, name)}").Family
