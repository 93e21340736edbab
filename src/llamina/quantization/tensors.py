"""What tensors are, by their names: which are quantized at all, and which part of a layer they are."""

import re
from math import prod

_KEPT = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|ffn_gate_tid2eid\.weight|altup|laurel|per_layer_model_proj"
    r"|^position_embd\.weight$|^token_types\.weight$|ssm_conv1d|shortconv\.conv\.weight"
    r"|indexer\.[kq]_proj\.weight|time_mix_(first|[wva][012]|g[12]|decay_w[12]|lerp_fused)\.weight|attn_rel_b\.weight"
    r"|\.position_embd|sam\.pos_embd|sam\.neck\.|sam\.net_|\.rel_pos|\.patch_embd|\.patch_merger"
    r"|a\.rvq\.codebook|mm\.a\.code_embd"
)
_KEPT_OF = {
    "glm5-next": re.compile(
        r"hc_|indexer\.attn_q_b|indexer\.attn_k|indexer\.proj|indexer_compressor_(gate|ape)|ssm_[fg]_[ab]\.weight"
        r"|ssm_beta\.weight|attn_kv_a_mqa\.weight|attn_[kv]_b\.weight"
    )
}
_ROLES = {
    "attn_qkv.weight": "value",
    "attn_kv_b.weight": "value",
    "attn_v.weight": "value",
    "attn_k.weight": "key",
    "attn_q.weight": "query",
    "attn_output.weight": "attention output",
    "ffn_up": "up",
    "ffn_gate": "gate",
    "ffn_down": "down",
}
"""By the first part that a name has. A matrix that makes values and more is treated as one of values."""


def is_quantized(name: str, shape: tuple[int, ...], architecture: str) -> bool:
    """Whether a tensor takes part in quantizing: matrices of weights, but for norms, routers and other small ones."""
    if prod(shape[:-1]) < 2 or not name.endswith("weight") or _KEPT.search(name):
        return False
    kept = _KEPT_OF.get(architecture)
    return kept is None or not kept.search(name)


def role_of(name: str) -> str:
    """What a tensor does, as far as quantizing cares: `output`, `embedding`, `value`, `down`, … or `other`."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((role for part, role in _ROLES.items() if part in name), "other")


def order_of(name: str) -> tuple[int, str]:
    """The place of a tensor among the others: by layer, then by name."""
    layer = layer_of(name)
    return (-1 if layer is None else layer, name)


def layer_of(name: str) -> int | None:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else None
