"""Model names → files: the catalogue, pulling, listing, removing, and the model that is meant when none is named."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamina.hub.bar import progress_bar
    from llamina.hub.catalogue import CATALOGUE, DEFAULT, Entry, Progress, entry_of, entry_of_file
    from llamina.hub.download import obtain, pull
    from llamina.hub.sampling import sampling_for
    from llamina.hub.store import Model, find, models, models_of, names, remove
    from llamina.hub.unneeded import Leftover, leftovers

_PLACES = {
    "bar": ("progress_bar",),
    "catalogue": ("CATALOGUE", "DEFAULT", "Entry", "Progress", "entry_of", "entry_of_file"),
    "download": ("obtain", "pull"),
    "unneeded": ("Leftover", "leftovers"),
    "sampling": ("sampling_for",),
    "store": ("Model", "find", "models", "models_of", "names", "remove"),
}


def __getattr__(name: str) -> Any:
    """Names are imported on first use: a model that is given as a file needs the catalogue alone."""
    for module, names in _PLACES.items():
        if name in names:
            value = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'llamina.hub' has no attribute {name!r}")


__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "Entry",
    "Leftover",
    "Model",
    "Progress",
    "entry_of",
    "entry_of_file",
    "find",
    "leftovers",
    "models",
    "models_of",
    "names",
    "obtain",
    "progress_bar",
    "pull",
    "remove",
    "sampling_for",
]
