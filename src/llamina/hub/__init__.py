"""Model names → files: pulling, listing, removing, and the model that is meant when none is named."""

from llamina.hub.pull import pull
from llamina.hub.sources import DEFAULT, SOURCES, Progress, Source, Wheel, source_of
from llamina.hub.store import Model, find, models, models_of, names, remove

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
