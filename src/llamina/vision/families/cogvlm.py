"""CogVLM: EVA's ViT over one square, normed after attention and MLP, a gated MLP, and rows before and behind."""

import numpy as np
import numpy.typing as npt

from llamina.models import Weights
from llamina.models.blocks import query_key_value
from llamina.ops import Value, activate, attend, flat, gated, linear, norm
from llamina.quant import decode
from llamina.vision.encoder import Encoder, Part
from llamina.vision.picture import Picture
from llamina.vision.resize import CLIP_GREY, fit

EPS = 1e-5  # of the projection's norm


class Family(Encoder):
    def setup(self) -> None:
        self.before, self.behind = (decode(w.data, w.format, w.shape).reshape(1, -1) for w in (self.v.boi, self.v.eoi))

    def parts(self, picture: Picture) -> list[Part]:
        return [fit(picture.pixels, (self.side, self.side), "bicubic", CLIP_GREY)]

    def arrange(self, rows: npt.NDArray[np.float32], grid: tuple[int, int]) -> npt.NDArray[np.float32]:
        return np.concatenate([self.before, rows, self.behind])

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        q, k, v = query_key_value(x, w, self.config, layer)
        x = x + self.norm(linear(flat(attend(q, k, v, layer, self.attention)), w.attn_out), w.ln1)
        return x + self.norm(self.mlp(x, w), w.ln2)

    def project(self, x: Value) -> Value:
        mm = self.mm
        x = activate(norm(linear(x, getattr(mm, "model.fc")), mm.post_fc_norm, EPS, "layer"), "gelu")
        return linear(gated(linear(x, mm.gate), linear(x, mm.up), "silu"), mm.down)
