"""Encoders of Hugging Face folders as mmproj files."""

from llamina.convert.encoders.kinds import ENCODERS, encoders_of
from llamina.convert.encoders.parts import ARCHITECTURE, encoder_metadata, encoder_tensors
from llamina.convert.encoders.source import Source

__all__ = ["ARCHITECTURE", "ENCODERS", "Source", "encoder_metadata", "encoder_tensors", "encoders_of"]
