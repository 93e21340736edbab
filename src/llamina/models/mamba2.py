"""Mamba 2: nothing but state-space layers."""

from ..ops import Value
from .decoder import Decoder
from .ssm import mamba2
from .weights import Weights


class Model(Decoder):
    def block(self, x: Value, w: Weights, layer: int) -> Value:
        return x + mamba2(self.norm(x, w.attn_norm), w, self.config, layer)
