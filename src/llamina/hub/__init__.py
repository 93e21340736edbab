"""Model names → files: pulling, listing, removing, and the model that is meant when none is named."""

from .pull import pull
from .sources import DEFAULT, SOURCES, Progress, Source, Wheel, source_of
from .store import Model, find, models, models_of, names, remove

__all__ = [
    "DEFAULT",
    "SOURCES",
    "Model",
    "Progress",
    "Source",
    "Wheel",
    "find",
    "models",
    "models_of",
    "names",
    "pull",
    "remove",
    "source_of",
]
