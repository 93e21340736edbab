"""Models by Ollama's names, with or without `:latest`; how long they are kept."""

import re

from llamina.server.errors import ApiError
from llamina.server.models import Entry, Models

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,200}(:[A-Za-z0-9._-]{1,80})?")
LATEST = ":latest"


def find(models: Models, name: str) -> Entry:
    """The entry of a name. Raises ApiError if there is none of it."""
    if not name:
        raise ApiError(400, "model is required", param="model")
    short = name.removesuffix(LATEST)
    for entry in models.entries.values():
        if {name, short, short + LATEST} & {entry.id, *entry.profile.aliases}:
            return entry
    return models.find(name)


def new_name(name: str, param: str = "model") -> str:
    """The id for a new model. Raises ApiError for a name that cannot be one."""
    if not NAME.fullmatch(name) or ".." in name:
        message = f"{param} is {name!r}: must be letters, digits, '.', '_', '-', '/' and a tag after ':'"
        raise ApiError(400, message, param=param)
    return name.removesuffix(LATEST)


def shown(id: str) -> str:
    """An id as Ollama lists it: always with a tag."""
    return id if ":" in id else id + LATEST


async def keep(models: Models, entry: Entry, seconds: float | None) -> None:
    """Do what `keep_alive` asks once a request is done: 0 unloads the model as soon as nobody uses it."""
    if seconds is not None:
        await models.keep(entry, seconds)
