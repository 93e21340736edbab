"""Sounds for models that hear: reading them, their spectrograms, and encoders that make embedding rows of these."""

from collections.abc import Mapping
from typing import Any

from llamina.media import about as about_family
from llamina.media import family_of, names
from llamina.models import Weights
from llamina.ops import Weight
from llamina.sound import families
from llamina.sound.encoder import Encoder
from llamina.sound.sound import LIMITS, RATE, Limits, Sound, as_base64, read_sound

ALIASES = {"qwen2.5o": "qwen2a"}  # projectors that share a file


def projectors() -> list[str]:
    """Every `clip.projector_type` that can be run."""
    return names(families, ALIASES)


def about(projector: str) -> str:
    """What a projector's family covers, in a sentence."""
    return about_family(projector, families, ALIASES)


def build(metadata: Mapping[str, Any], tensors: Mapping[str, Weight]) -> Encoder:
    """The sound encoder that an mmproj file describes. Raises UnsupportedModel for one that is not known here."""
    encoder: Encoder = family_of("audio", metadata, families, ALIASES)(metadata, Weights(tensors))
    return encoder


__all__ = ["LIMITS", "RATE", "Encoder", "Limits", "Sound", "about", "as_base64", "build", "projectors", "read_sound"]
