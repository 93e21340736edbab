"""Models that were pulled, created or loaded while the server ran: it knows them again after a restart."""

import asyncio
import hashlib
import logging
import os

import msgspec

from llamina import hub
from llamina.errors import LlaminaError
from llamina.server.config import ModelProfile
from llamina.server.models import Models
from llamina.server.ollama.modelfile import Modelfile
from llamina.server.store import Store

log = logging.getLogger("llamina.server")
KIND = "model"


async def keep(store: Store, id: str, profile: ModelProfile, modelfile: Modelfile | None = None) -> None:
    """Remember a model, in the place of one with the same id."""
    body = {"name": id, "profile": msgspec.to_builtins(profile), "modelfile": msgspec.to_builtins(modelfile)}
    await forget(store, id)
    await store.insert(KIND, _key(id), body)


async def forget(store: Store, id: str) -> None:
    await store.delete(KIND, _key(id))


async def restore(store: Store, models: Models) -> None:
    """Make the models known that an earlier process had, but for those that are configured or whose file is gone."""
    for kept in await store.all(KIND):
        id = kept.body["name"]
        try:
            profile = msgspec.convert(kept.body["profile"], ModelProfile)
            modelfile = msgspec.convert(kept.body["modelfile"], Modelfile | None)
        except msgspec.ValidationError as error:
            log.warning("the model %s was kept by another version, and is left out: %s", id, error)
            continue
        if id in models.entries:
            continue
        if not await asyncio.to_thread(_is_there, profile.model):
            log.warning("the model %s is left out: its file is gone: %s", id, profile.model)
            continue
        models.add(id, profile).modelfile = modelfile


def _is_there(model: str) -> bool:
    try:
        return os.path.exists(model) or bool(hub.find(model))
    except LlaminaError:
        return False


def _key(id: str) -> str:
    """Of any name one that the database has room for."""
    return "model_" + hashlib.sha256(id.encode()).hexdigest()[:32]
