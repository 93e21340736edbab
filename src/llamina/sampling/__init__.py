"""From logits to a token."""

from llamina.sampling.chain import chain, draw
from llamina.sampling.params import Sampling

__all__ = ["Sampling", "chain", "draw"]
