"""Mamba 1 and Falcon Mamba: nothing but state-space layers."""

from llamina.models.decoder import Decoder
from llamina.models.ssm import mamba
from llamina.models.weights import Weights
from llamina.ops import Value


class Model(Decoder):
    def block(self, x: Value, w: Weights, layer: int) -> Value:
        return x + mamba(self.norm(x, w.attn_norm), w, self.config, layer)
