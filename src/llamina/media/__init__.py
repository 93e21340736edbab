"""What encoders of pictures and of sounds share: blocks over rows, what runs a plan of them, and what comes out."""

from llamina.media.encoder import Encoder, Medium, Patches, Run, Stem, projector_of
from llamina.media.family import about, family_of, names
from llamina.media.runner import Encoded, EncoderRunner, Rows

__all__ = [
    "Encoded",
    "Encoder",
    "EncoderRunner",
    "Medium",
    "Patches",
    "Rows",
    "Run",
    "Stem",
    "about",
    "family_of",
    "names",
    "projector_of",
]
