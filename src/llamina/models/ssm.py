"""State-space layers: Mamba 1 and 2, as the shared blocks of every model that has them."""

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
    scan,
    split,
)


def mamba(h: Value, w: Weights, config: Config, layer: int) -> Value:
    """Mamba 1: a state per channel, with dt, b and c computed from the convolved input."""
    inner, n = config.count("ssm.inner_size"), config.count("ssm.state_size")
    rank = config.count("ssm.time_step_rank")
    x, z = split(linear(h, w.ssm_in), inner, inner)
    x = activate(convolve(x, w.ssm_conv1d, layer), "silu")
    dt, b, c = split(linear(x, w.ssm_x), rank, n, n)
    if "ssm_dt_norm" in w or config.flag("ssm.dt_b_c_rms"):
        dt, b, c = (
            norm(value, w.get(name), config.eps)
            for value, name in ((dt, "ssm_dt_norm"), (b, "ssm_b_norm"), (c, "ssm_c_norm"))
        )
    dt = activate(linear(dt, w.ssm_dt), "softplus")
    y = scan(x, dt, w.ssm_a, b, c, layer) + mul(x, w.ssm_d.shaped(inner))
    return linear(gated(z, y, "silu"), w.ssm_out)


def mamba2(h: Value, w: Weights, config: Config, layer: int) -> Value:
    """Mamba 2: heads with one decay each, b and c shared by groups of them."""
    inner, n = config.count("ssm.inner_size"), config.count("ssm.state_size")
    n_heads, groups = config.count("ssm.time_step_rank"), config.count("ssm.group_count")
    z, xbc, dt = split(linear(h, w.ssm_in), inner, inner + 2 * groups * n, n_heads)
    x, b, c = split(activate(convolve(xbc, w.ssm_conv1d, layer), "silu"), inner, groups * n, groups * n)
    y = state_space(heads(x, n_heads), dt + w.ssm_dt, heads(b, groups), heads(c, groups), w, layer)
    y = gated(z, flat(y), "silu")
    if "ssm_norm" in w:
        y = flat(norm(heads(y, groups), w.ssm_norm, config.eps))
    return linear(y, w.ssm_out)


def state_space(x: Value, dt: Value, b: Value, c: Value, w: Weights, layer: int) -> Value:
    """Mamba 2's recurrence is linear attention: b is the key, c the query; dt says what enters and what fades."""
    n = x.shape[0]
    dt = activate(dt, "softplus")
    decay = activate(mul(dt, w.ssm_a.shaped(n)), "exp")
    y = linear_attend(c, b, mul(x, reshape(dt, n, 1)), reshape(decay, n, 1), layer)
    return y + mul(x, w.ssm_d.shaped(n, 1))
