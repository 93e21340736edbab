"""Pieces that many architectures share. Residual connections are not among them: they belong to the model."""

from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import (
    Activation,
    Routing,
    Value,
    activate,
    expert_linear,
    gated,
    heads,
    linear,
    mix,
    route,
    split,
)


def query_key_value(h: Value, w: Weights, config: Config, layer: int) -> tuple[Value, Value, Value]:
    """q, k and v as (heads, dim), from three matrices or a fused one."""
    n = config.count("attention.head_count", 1, layer=layer)
    m = config.count("attention.head_count_kv", n, layer=layer)
    if "attn_qkv" in w:
        q, k, v = split(linear(h, w.attn_qkv), n * config.head_dim, m * config.head_dim, m * config.value_dim)
    else:
        q, k, v = linear(h, w.attn_q), linear(h, w.attn_k), linear(h, w.attn_v)
    return heads(q, n), heads(k, m), heads(v, m)


def gated_mlp(h: Value, w: Weights, kind: Activation = "silu", suffix: str = "") -> Value:
    """down(act(gate) × up); a file may hold gate and up as one matrix."""
    up = linear(h, getattr(w, f"ffn_up{suffix}"))
    if f"ffn_gate{suffix}" in w:
        gate = linear(h, getattr(w, f"ffn_gate{suffix}"))
    else:
        gate, up = split(up, up.size // 2, up.size // 2)
    return linear(gated(gate, up, kind), getattr(w, f"ffn_down{suffix}"))


def plain_mlp(h: Value, w: Weights, kind: Activation) -> Value:
    """down(act(up))."""
    return linear(activate(linear(h, w.ffn_up), kind), w.ffn_down)


def experts(h: Value, w: Weights, how: Routing, kind: Activation = "silu") -> Value:
    """The chosen experts' gated MLPs, weighed and summed."""
    chosen, weights = route(linear(h, w.ffn_gate_inp), how, w.get("exp_probs_b"))
    gate = expert_linear(h, w.ffn_gate_exps, chosen)
    up = expert_linear(h, w.ffn_up_exps, chosen)
    return mix(expert_linear(gated(gate, up, kind), w.ffn_down_exps, chosen), weights)
