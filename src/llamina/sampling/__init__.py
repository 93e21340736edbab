"""From logits to a token."""

from .chain import chain, draw
from .params import Sampling

__all__ = ["Sampling", "chain", "draw"]
