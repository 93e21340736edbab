"""Layers that keep a matrix per head and correct it by the delta rule."""

from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import (
    Value,
    activate,
    convolve,
    flat,
    gated,
    heads,
    linear,
    linear_attend,
    mul,
    norm,
    reshape,
    scale,
    split,
)


def gated_delta(
    qkv: Value, z: Value, beta: Value, alpha: Value, w: Weights, config: Config, layer: int, tiled: bool
) -> Value:
    """Gated delta net: q, k and v convolved together; beta says how much is corrected, alpha how much is forgotten."""
    keys, n = config.count("ssm.group_count"), config.count("ssm.time_step_rank")
    key_dim, inner = config.count("ssm.state_size"), config.count("ssm.inner_size")
    q, k, v = split(activate(convolve(qkv, w.ssm_conv1d, layer), "silu"), keys * key_dim, keys * key_dim, inner)
    q, k = unit(heads(q, keys), config.eps, key_dim**-0.5), unit(heads(k, keys), config.eps)
    decay = activate(mul(activate(alpha + w.ssm_dt, "softplus"), w.ssm_a.shaped(n)), "exp")
    y = linear_attend(q, k, heads(v, n), reshape(decay, n, 1), layer, activate(beta, "sigmoid"), tiled)
    return linear(flat(gated(heads(z, n), norm(y, w.ssm_norm, config.eps), "silu")), w.ssm_out)


def unit(x: Value, eps: float, length: float = 1.0) -> Value:
    """Each head as a vector of this length."""
    n = x.shape[-1]
    return scale(norm(x, None, eps / n), length * n**-0.5)
