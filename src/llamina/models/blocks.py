"""Pieces that many architectures share. Residual connections are not among them: they belong to the model."""

from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import (
    Activation,
    Gate,
    Routing,
    Value,
    activate,
    expert_linear,
    gated,
    heads,
    linear,
    mix,
    reshape,
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


def gated_mlp(h: Value, w: Weights, kind: Gate = "silu", suffix: str = "") -> Value:
    """down(act(gate) × up); a file may hold gate and up as one matrix."""
    up = linear(h, getattr(w, f"ffn_up{suffix}"))
    if f"ffn_gate{suffix}" in w:
        gate = linear(h, getattr(w, f"ffn_gate{suffix}"))
    else:
        gate, up = split(up, up.size // 2, up.size // 2)
    return linear(gated(gate, up, kind), getattr(w, f"ffn_down{suffix}"))


def plain_mlp(h: Value, w: Weights, kind: Activation, suffix: str = "") -> Value:
    """down(act(up))."""
    return linear(activate(linear(h, getattr(w, f"ffn_up{suffix}")), kind), getattr(w, f"ffn_down{suffix}"))


def experts(
    h: Value, w: Weights, how: Routing, kind: Gate = "silu", scores: Value | None = None, weigh_gates: bool = False
) -> Value:
    """The chosen experts' gated MLPs, weighed and summed; `scores` are given where the router sees something else."""
    scores = linear(h, w.ffn_gate_inp) if scores is None else scores
    chosen, weights = route(scores, how, w.get("exp_probs_b"))
    if "ffn_gate_up_exps" in w:
        both = expert_linear(h, w.ffn_gate_up_exps, chosen)
        gate, up = split(both, both.shape[1] // 2, both.shape[1] // 2)
    else:
        gate, up = expert_linear(h, w.ffn_gate_exps, chosen), expert_linear(h, w.ffn_up_exps, chosen)
    if weigh_gates:
        gate = gate * reshape(weights, how.used, 1)
    return mix(expert_linear(gated(gate, up, kind), w.ffn_down_exps, chosen), weights)


def sparse_mlp(h: Value, w: Weights, how: Routing, kind: Gate = "silu", weigh_gates: bool = False) -> Value:
    """Experts, beside a shared one where the file has it; a layer without a router is a gated MLP."""
    if "ffn_gate_inp" not in w:
        return gated_mlp(h, w, kind)
    routed = experts(h, w, how, kind, weigh_gates=weigh_gates)
    return routed + gated_mlp(h, w, kind, "_shexp") if "ffn_up_shexp" in w else routed
