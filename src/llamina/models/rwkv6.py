"""RWKV 6 (Finch), and QRWKV 6, Qwen 2 with its time mixing: linear attention with a decay for each channel.

What a token gives to its matrices is a blend of it and the token before. RWKV's own reads the state as it was before
the token, and weighs the token itself by a learned bonus; so keys, values and decays come a token late to the state.
"""

from llamina.models.blocks import gated_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import (
    Value,
    Weight,
    activate,
    add,
    concat,
    constant,
    convolve,
    flat,
    head_linear,
    heads,
    linear,
    linear_attend,
    mul,
    norm,
    reshape,
    scale,
    split,
)

NORM_EPS = 64e-5  # of what the heads have read


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.qwen = c.architecture == "rwkv6qwen2"
        self.norm_kind = "rms" if self.qwen else "layer"
        self.dim = c.count("wkv.head_size")
        self.rescale = c.count("rescale_every_n_layers", 0, least=0)

    def embed(self, tokens: Value, positions: Value) -> Value:
        x = super().embed(tokens, positions)
        return x if self.qwen else self.norm(x, self.weights.token_embd_norm)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        x = x + self.time_mix(self.norm(x, w.attn_norm), w, layer)
        if self.qwen:
            return x + gated_mlp(self.norm(x, w.ffn_norm), w)
        x = x + self.channel_mix(self.norm(x, w.attn_norm_2), w, layer)
        return scale(x, 0.5) if self.rescale and (layer + 1) % self.rescale == 0 else x

    def channel_mix(self, h: Value, w: Weights, layer: int) -> Value:
        change = convolve(h, taps(f"blk.{layer}.channel_mix", h.size, 1, -1), layer)
        x_k, x_r = (h + mul(change, part.shaped(h.size)) for part in (w.channel_mix_lerp_k, w.channel_mix_lerp_r))
        k = activate(linear(x_k, w.channel_mix_key), "relu_sqr")
        return activate(linear(x_r, w.channel_mix_receptance), "sigmoid") * linear(k, w.channel_mix_value)

    def time_mix(self, h: Value, w: Weights, layer: int) -> Value:
        count = h.size // self.dim
        x_w, x_k, x_v, x_r, x_g = self.blends(h, w, layer)
        r, k, v = (
            linear(part, matrix)
            for part, matrix in ((x_r, w.time_mix_receptance), (x_k, w.time_mix_key), (x_v, w.time_mix_value))
        )
        decay = linear(activate(linear(x_w, w.time_mix_decay_w1), "tanh"), w.time_mix_decay_w2)
        decay = activate(scale(activate(add(decay, w.time_mix_decay), "exp"), -1.0), "exp")
        gate = activate(linear(x_g, w.time_mix_gate), "sigmoid" if self.qwen else "silu")
        if self.qwen:
            k, v = (flat(repeated(heads(part, part.size // self.dim), count)) for part in (k, v))
            read = self.read(scale(r, self.dim**-0.5), k + scale(k * decay, -1.0), v, decay, layer)
        else:
            own = mul(heads(r * k, count), w.time_mix_first.shaped(count, self.dim))
            bonus = heads(v, count) * linear(own, constant("ones", [[1.0] * self.dim]))
            k, v, decay = (
                convolve(part, taps(f"blk.{layer}.late_{name}", h.size, 1, 0), layer)
                for name, part in (("key", k), ("value", v), ("decay", decay))
            )
            read = norm(self.read(r, k, v, decay, layer) + bonus, w.time_mix_ln, NORM_EPS, "layer")
        return linear(flat(read) * gate, w.time_mix_output)

    def read(self, r: Value, k: Value, v: Value, decay: Value, layer: int) -> Value:
        n = r.size // self.dim
        return linear_attend(heads(r, n), heads(k, n), heads(v, n), heads(decay, n), layer)

    def blends(self, h: Value, w: Weights, layer: int) -> list[Value]:
        """Five blends of a token with the one before it, in shares that depend on the token."""
        n, change = h.size, convolve(h, taps(f"blk.{layer}.time_mix", h.size, 1, -1), layer)
        blend = activate(linear(h + mul(change, w.time_mix_lerp_x.shaped(n)), w.time_mix_w1), "tanh")
        shares = head_linear(heads(blend, 5), w.time_mix_w2)
        if fused := w.get("time_mix_lerp_fused"):
            learned = [fused.shaped(5, n).rows(i, i + 1).shaped(n) for i in range(5)]
        else:
            learned = [getattr(w, f"time_mix_lerp_{part}").shaped(n) for part in "wkvrg"]
        return [add(share, own) * change + h for share, own in zip(split(flat(shares), *[n] * 5), learned, strict=True)]


def taps(name: str, channels: int, before: float, now: float) -> Weight:
    """The kernel by which each channel sees the token before and this one."""
    return constant(name, [[before, now]] * channels)


def repeated(x: Value, count: int) -> Value:
    """(groups, dim) → (count, dim), each group several times in a row."""
    groups, dim = x.shape
    wide = x
    for _ in range(count // groups - 1):
        wide = concat(wide, x)
    return reshape(wide, count, dim)
