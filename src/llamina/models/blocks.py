"""Pieces that many architectures share. Residual connections are not among them: they belong to the model."""

import math

from llamina.errors import UnsupportedModel
from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import (
    Activation,
    Attention,
    Gate,
    Rope,
    Routing,
    Selection,
    Value,
    Weight,
    activate,
    attend,
    attend_latent,
    clamp,
    concat,
    div,
    embed,
    expert_linear,
    gated,
    head_linear,
    heads,
    linear,
    mix,
    norm,
    reshape,
    rope,
    route,
    scale,
    select,
    split,
)


def query_key_value(h: Value, w: Weights, config: Config, layer: int) -> tuple[Value, Value, Value]:
    """q, k and v as (heads, dim), from three matrices or a fused one; some files clamp them."""
    n = config.count("attention.head_count", 1, layer=layer)
    m = config.count("attention.head_count_kv", n, layer=layer)
    if "attn_qkv" in w:
        q, k, v = split(linear(h, w.attn_qkv), n * config.head_dim, m * config.head_dim, m * config.value_dim)
    else:
        q, k, v = linear(h, w.attn_q), linear(h, w.attn_k), linear(h, w.attn_v)
    if limit := config.number("attention.clamp_kqv", 0.0):
        q, k, v = (clamp(x, -limit, limit) for x in (q, k, v))
    return heads(q, n), heads(k, m), heads(v, m)


def add_positions(x: Value, positions: Value, table: Weight, config: Config) -> Value:
    """x plus its positions' learned vectors; there must be one for every position of the context."""
    learned = table.shape[0]
    if config.context > learned:
        raise UnsupportedModel(
            f"the model has learned {learned} positions, and the context is {config.context}: "
            f"load it with a context of {learned} or less"
        )
    return x + embed(positions, table)


def gated_mlp(
    h: Value, w: Weights, kind: Gate = "silu", suffix: str = "", limit: float = 0.0, silu_limit: float = 0.0
) -> Value:
    """down(act(gate) × up); a file may hold gate and up as one matrix. For the limits see `_gated`."""
    up = linear(h, getattr(w, f"ffn_up{suffix}"))
    if f"ffn_gate{suffix}" in w:
        gate = linear(h, getattr(w, f"ffn_gate{suffix}"))
    else:
        gate, up = split(up, up.size // 2, up.size // 2)
    return linear(_gated(gate, up, kind, limit, silu_limit), getattr(w, f"ffn_down{suffix}"))


def _gated(gate: Value, up: Value, kind: Gate, limit: float, silu_limit: float) -> Value:
    """act(gate) × up. `limit` cuts gate from above, `silu_limit` silu(gate), and either up on both sides; 0 is none."""
    if silu_limit:
        return clamp(activate(gate, "silu"), -math.inf, silu_limit) * clamp(up, -silu_limit, silu_limit)
    if limit:
        gate, up = clamp(gate, -math.inf, limit), clamp(up, -limit, limit)
    return gated(gate, up, kind)


def plain_mlp(h: Value, w: Weights, kind: Activation, suffix: str = "") -> Value:
    """down(act(up)); AWQ files divide by scales before `down`."""
    h = activate(linear(h, getattr(w, f"ffn_up{suffix}")), kind)
    scales = w.get("ffn.act.scales")
    return linear(div(h, scales) if scales else h, getattr(w, f"ffn_down{suffix}"))


def experts(
    h: Value,
    w: Weights,
    params: Routing,
    kind: Gate = "silu",
    *,
    scores: Value | None = None,
    weigh_gates: bool = False,
    limit: float = 0.0,
    silu_limit: float = 0.0,
    suffix: str = "_exps",
) -> Value:
    """The chosen experts' gated MLPs, weighed and summed.

    `scores` are given where the router sees something else than the experts; for the limits see `_gated`.
    """
    scores = linear(h, w.ffn_gate_inp) if scores is None else scores
    chosen, weights = route(scores, params, w.get("exp_probs_b"))
    if f"ffn_gate_up{suffix}" in w:
        both = expert_linear(h, getattr(w, f"ffn_gate_up{suffix}"), chosen)
        gate, up = split(both, both.shape[1] // 2, both.shape[1] // 2)
    else:
        gate, up = (expert_linear(h, getattr(w, f"ffn_{part}{suffix}"), chosen) for part in ("gate", "up"))
    if weigh_gates:
        gate = gate * reshape(weights, params.used, 1)
    up = _gated(gate, up, kind, limit, silu_limit)
    return mix(expert_linear(up, getattr(w, f"ffn_down{suffix}"), chosen), weights)


def low_rank_query(h: Value, w: Weights, config: Config) -> Value | None:
    """What MLA's q is made of, unless it is made of h itself."""
    return norm(linear(h, w.attn_q_a), w.attn_q_a_norm, config.eps) if "attn_q_a" in w else None


def latent_parts(
    h: Value, w: Weights, config: Config, low_rank: Value | None = None
) -> tuple[Value, Value, Value, Value]:
    """MLA's q without and with position (heads, dim), the latent vector, and the key with position (1, dim)."""
    low_rank = low_rank_query(h, w, config) if low_rank is None else low_rank
    q = linear(h, w.attn_q) if low_rank is None else linear(low_rank, w.attn_q_b)
    key, size = linear(h, w.attn_kv_a_mqa), config.count("attention.kv_lora_rank")
    rope_dims, q = key.size - size, heads(q, config.heads)
    q, q_rope = split(q, q.shape[1] - rope_dims, rope_dims)
    latent, k_rope = split(key, size, rope_dims)
    return q, q_rope, norm(latent, w.attn_kv_a_norm, config.eps), reshape(k_rope, 1, rope_dims)


def latent_attention(
    q: Value,
    q_rope: Value | None,
    latent: Value,
    k_rope: Value | None,
    w: Weights,
    layer: int,
    params: Attention,
    selected: Value | None = None,
) -> Value:
    """MLA over one latent vector per token: q's part without position is carried into the latent space, values out.

    Older files hold one matrix that expands the latent to every head's key and value instead.
    """
    n, plain, size = q.shape[0], q.shape[1], latent.size
    if "attn_k_b" not in w:
        keys = heads(linear(latent, w.attn_kv_b), n)
        k, v = split(keys, plain, keys.shape[1] - plain)
    else:
        q, k = head_linear(q, w.attn_k_b.shaped(n, size, plain)), reshape(latent, 1, size)
    if q_rope is not None and k_rope is not None:
        q, k = concat(q, q_rope), concat(k, k_rope)
    if "attn_k_b" not in w:
        return attend(q, k, v, layer, params, selected=selected)
    out = attend_latent(q, k, size, layer, params, selected)
    return head_linear(out, w.attn_v_b.shaped(n, math.prod(w.attn_v_b.shape) // (n * size), size))


def lightning(
    h: Value, low_rank: Value, w: Weights, layer: int, choice: Selection, settings: Rope, eps: float
) -> Value | None:
    """DeepSeek's indexer: the positions worth attending to, unless there is room for all."""
    if choice.top >= choice.context:
        return None
    index = w.part("indexer")
    k = norm(heads(linear(h, index.attn_k), 1), index.k_norm, eps, "layer")
    n = index.proj.shape[0]
    q = heads(linear(low_rank, index.attn_q_b), n)
    weights = scale(linear(h, index.proj), (n * q.shape[1]) ** -0.5)
    return select(rope(q, settings), rope(k, settings), layer, choice, weights)


def sparse_mlp(h: Value, w: Weights, params: Routing, kind: Gate = "silu", weigh_gates: bool = False) -> Value:
    """Experts, beside a shared one where the file has it (and maybe weighs it); without a router a gated MLP."""
    if "ffn_gate_inp" not in w:
        return gated_mlp(h, w, kind)
    routed = experts(h, w, params, kind, weigh_gates=weigh_gates)
    if "ffn_up_shexp" not in w:
        return routed
    shared = gated_mlp(h, w, kind, "_shexp")
    if "ffn_gate_inp_shexp" in w:
        shared = shared * activate(linear(h, w.ffn_gate_inp_shexp.shaped(1, h.size)), "sigmoid")
    return routed + shared
