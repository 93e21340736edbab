"""How much memory a model takes: an estimate from its file before it is loaded, what its process has afterwards."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from llamina import hub
from llamina.backends import state_bytes
from llamina.engine.runner.load import DEFAULT_CONTEXT, weights_of
from llamina.errors import ModelNotFound
from llamina.gguf import open_model
from llamina.models import build
from llamina.ops.batch import PAGE
from llamina.plan import record
from llamina.server.config import ModelProfile
from llamina.server.model import Model, WorkerModel

SEQUENCES = 16  # that are computed at once unless a profile says otherwise


@dataclass(frozen=True)
class Estimate:
    """Bytes."""

    weights: int
    cache: int

    @property
    def total(self) -> int:
        return self.weights + self.cache


def estimate(profile: ModelProfile) -> Estimate:
    """The size of the weights and of a full KV cache; nothing for a model that is still to be downloaded.

    Raises LlaminaError if the file cannot be read or is of no known architecture.
    """
    own = _of_file(profile.model, profile)
    draft = _of_file(profile.draft, profile) if profile.draft else Estimate(0, 0)
    encoder = os.path.getsize(profile.mmproj) if profile.mmproj and os.path.exists(profile.mmproj) else 0
    return Estimate(own.weights + draft.weights + encoder, own.cache + draft.cache)


def _of_file(model: str, profile: ModelProfile) -> Estimate:
    try:
        path = Path(model) if os.path.exists(model) else hub.find(model)
    except ModelNotFound:
        return Estimate(0, 0)
    with open_model(path) as file:
        built = build(file.metadata, weights_of(file, read=False))
        plan, trained = record(built.forward), built.config.trained_context
        weights = sum(tensor.nbytes for tensor in file.tensors.values())
    context = profile.context or min(trained, DEFAULT_CONTEXT)
    sequences = profile.max_sequences or SEQUENCES
    size = state_bytes(plan, profile.kv_type or "f16")
    pages = -(-(profile.cache_tokens or context * sequences) // PAGE)
    return Estimate(weights, pages * (size["page"] + size["window"]) + sequences * size["slot"])


def resident(model: Model) -> int:
    """What a loaded model has now: the resident memory of its process, the mapped weights included."""
    if isinstance(model, WorkerModel):
        try:
            return int(psutil.Process(model.pid).memory_info().rss) if model.pid is not None else 0
        except psutil.Error:  # it has just ended
            return 0
    return model.info.weight_bytes
