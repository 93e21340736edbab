"""Model names → files: the catalogue, pulling, listing, removing, and the model that is meant when none is named."""

from llamina.hub.bar import progress_bar
from llamina.hub.catalogue import CATALOGUE, DEFAULT, Entry, Progress, entry_of, entry_of_file
from llamina.hub.pull import obtain, pull
from llamina.hub.sampling import sampling_for
from llamina.hub.store import Model, find, models, models_of, names, remove

SOURCES, source_of = CATALOGUE, entry_of  # the names that cli/options.py still has for them

__all__ = [
    "CATALOGUE",
    "DEFAULT",
    "SOURCES",
    "Entry",
    "Model",
    "Progress",
    "entry_of",
    "entry_of_file",
    "find",
    "models",
    "models_of",
    "names",
    "obtain",
    "progress_bar",
    "pull",
    "remove",
    "sampling_for",
    "source_of",
]
