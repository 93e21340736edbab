"""Layers that keep a matrix per head and correct it by the delta rule."""

from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import (
    Activation,
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
    qkv: Value,
    z: Value,
    beta: Value,
    alpha: Value,
    w: Weights,
    config: Config,
    layer: int,
    tiled: bool,
    gate: Activation = "silu",
) -> Value:
    """Gated delta net: q, k and v convolved together; beta says how much is corrected, alpha how much is forgotten."""
    keys, n = config.count("ssm.group_count"), config.count("ssm.time_step_rank")
    key_dim, inner = config.count("ssm.state_size"), config.count("ssm.inner_size")
    q, k, v = split(activate(convolve(qkv, w.ssm_conv1d, layer), "silu"), keys * key_dim, keys * key_dim, inner)
    q, k = unit(heads(q, keys), config.eps, key_dim**-0.5), unit(heads(k, keys), config.eps)
    decay = activate(mul(activate(alpha + w.ssm_dt, "softplus"), w.ssm_a.shaped(n)), "exp")
    y = linear_attend(q, k, heads(v, n), reshape(decay, n, 1), layer, activate(beta, "sigmoid"), tiled)
    return linear(flat(gated(heads(z, n), norm(y, w.ssm_norm, config.eps), gate)), w.ssm_out)


def unit(x: Value, eps: float, length: float = 1.0) -> Value:
    """Each head as a vector of this length."""
    n = x.shape[-1]
    return scale(norm(x, None, eps / n), length * n**-0.5)


def kimi_delta(h: Value, fade: Value, w: Weights, config: Config, layer: int, unit_eps: float | None = None) -> Value:
    """Kimi's delta attention: q, k and v convolved one by one, and a decay (e**fade) for each key channel."""
    unit_eps = config.eps if unit_eps is None else unit_eps
    n, dim, m = config.heads, config.count("kda.head_dim"), w.unbiased
    if "attn_qkv" in w:
        projected = split(linear(h, m.attn_qkv), n * dim, n * dim, n * dim)
    else:
        projected = [linear(h, m.attn_q), linear(h, m.attn_k), linear(h, m.attn_v)]
    kernels = (w.ssm_conv1d_q, w.ssm_conv1d_k, w.ssm_conv1d_v)
    convolved = (convolve(x, k.shaped(n * dim, k.shape[-1]), layer) for x, k in zip(projected, kernels, strict=True))
    q, k, v = (heads(activate(x, "silu"), n) for x in convolved)
    beta = activate(linear(h, w.ssm_beta.shaped(n, config.width)), "sigmoid")
    q, k = unit(q, unit_eps, dim**-0.5), unit(k, unit_eps)
    y = norm(linear_attend(q, k, v, activate(fade, "exp"), layer, beta), w.ssm_norm, config.eps)
    gate = linear(h, w.ssm_g) if "ssm_g" in w else low_rank(h, w, "ssm_g")
    return linear(flat(gated(heads(gate, n), y, "sigmoid")), w.attn_output)


def rates(h: Value, w: Weights, config: Config) -> Value:
    """What Kimi's decays are made of, (heads, dim)."""
    return heads(low_rank(h, w, "ssm_f") + w.ssm_dt, config.heads)


def low_rank(h: Value, w: Weights, name: str) -> Value:
    """Two matrices of low rank, or the first one alone, which then is of full rank."""
    h = linear(h, getattr(w, f"{name}_a"))
    return linear(h, getattr(w, f"{name}_b")) if f"{name}_b" in w else h
