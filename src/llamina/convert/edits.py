"""Edits of tensors for GGUF: permuted rows, an added constant, a part of a fused matrix."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from llamina.convert.lazy import BLOCKS, Array, Lazy
from llamina.convert.rope import Rope
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError

Edit: TypeAlias = Callable[[Lazy, Settings], Lazy]


def interleave_queries(tensor: Lazy, settings: Settings) -> Lazy:
    """Permute rows for RoPE on adjacent pairs; transformers pairs the first half of a head with the second."""
    return _interleave(tensor, settings.heads)


def interleave_keys(tensor: Lazy, settings: Settings) -> Lazy:
    """As `interleave_queries`, for keys."""
    return _interleave(tensor, settings.kv_heads)


def _interleave(tensor: Lazy, heads: int) -> Lazy:
    rows, rest = tensor.shape[0], tensor.shape[1:]
    _divides(2 * heads, rows, "rows of a query or key matrix")
    return tensor.map(lambda x: x.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(x.shape))


def halve_queries(tensor: Lazy, settings: Settings) -> Lazy:
    """Permute rows for RoPE on the two halves of a head's rotated part; GLM pairs neighbours."""
    return _halve(tensor, settings.heads, Rope.read(settings).dims)


def halve_keys(tensor: Lazy, settings: Settings) -> Lazy:
    """As `halve_queries`, for keys."""
    return _halve(tensor, settings.kv_heads, Rope.read(settings).dims)


def _halve(tensor: Lazy, heads: int, rotated: int) -> Lazy:
    rows, rest = tensor.shape[0], tensor.shape[1:]
    _divides(heads, rows, "rows of a query or key matrix")

    def change(x: Array) -> Array:
        whole = x.reshape(heads, rows // heads, *rest)
        parts = (whole[:, :rotated:2], whole[:, 1:rotated:2], whole[:, rotated:])
        return np.concatenate(parts, axis=1).reshape(x.shape)

    return tensor.map(change)


def plus_one(tensor: Lazy, settings: Settings) -> Lazy:
    """Add 1: Gemma's norms multiply by 1 + weight."""
    return tensor.compute(lambda x: x + np.float32(1))


def transpose(tensor: Lazy, settings: Settings) -> Lazy:
    """Transpose: GPT-2 stores matrices column by column."""
    return tensor.map(np.transpose, tensor.shape[::-1])


def ungroup_heads(tensor: Lazy, settings: Settings) -> Lazy:
    """Regroup q, k and v of each head [heads, 3, dim, ...] to all q, all k, all v."""
    return _ungroup(tensor, settings.heads, 1)


def ungroup_falcon(tensor: Lazy, settings: Settings) -> Lazy:
    """Regroup queries with the key and value they share [kv heads, queries + 2, dim, ...] to all q, all k, all v."""
    groups = falcon_kv_heads(settings)
    return _ungroup(tensor, groups, settings.heads // groups)


def falcon_kv_heads(settings: Settings) -> int:
    """Return Falcon's number of key and value heads, which depends on its version."""
    if settings.get("new_decoder_architecture", False):
        return settings.count("num_kv_heads n_head_kv", settings.heads)
    return 1 if settings.get("multi_query", True) else settings.heads


def _ungroup(tensor: Lazy, groups: int, queries: int) -> Lazy:
    rows, rest = tensor.shape[0], tensor.shape[1:]
    _divides(groups * (queries + 2), rows, "rows of the fused matrix")

    def change(x: Array) -> Array:
        grouped = x.reshape(groups, queries + 2, rows // groups // (queries + 2), *rest)
        parts = (grouped[:, :queries], grouped[:, queries], grouped[:, queries + 1])
        return np.concatenate([part.reshape(-1, *rest) for part in parts])

    return tensor.map(change)


def first_half(tensor: Lazy, settings: Settings) -> Lazy:
    """Take the gate projections of a fused gate and up matrix (of each expert) [..., 2 x rows, columns]."""
    return _half(tensor, 0)


def second_half(tensor: Lazy, settings: Settings) -> Lazy:
    """Take the up projections of a fused gate and up matrix."""
    return _half(tensor, 1)


def _half(tensor: Lazy, which: int) -> Lazy:
    *experts, rows, columns = tensor.shape
    _divides(2, rows, "rows of a fused gate and up matrix")
    half = rows // 2
    return tensor.map(lambda x: x[..., which * half : (which + 1) * half, :], (*experts, half, columns))


def even(tensor: Lazy, settings: Settings) -> Lazy:
    """Take gpt-oss' gates: the even columns of [experts, columns, 2 x rows], or elements of a bias."""
    return _every_other(tensor, 0)


def odd(tensor: Lazy, settings: Settings) -> Lazy:
    """Take gpt-oss' up projections: the odd columns, or elements of a bias."""
    return _every_other(tensor, 1)


def _every_other(tensor: Lazy, which: int) -> Lazy:
    tensor = transpose_experts(tensor, settings=None)
    experts, rows, *columns = tensor.shape
    return tensor.map(lambda x: x[:, which::2], (experts, rows // 2, *columns))


def transpose_experts(tensor: Lazy, settings: Settings | None) -> Lazy:
    """Transpose the matrices of gpt-oss' experts; biases and MXFP4 blocks stay."""
    if len(tensor.shape) < 3 or tensor.dtype == BLOCKS:
        return tensor
    experts, columns, rows = tensor.shape
    return tensor.map(lambda x: x.swapaxes(1, 2), (experts, rows, columns))


def gate_rows(tensor: Lazy, settings: Settings) -> Lazy:
    """Take the gate projections of experts that may be stored column by column [experts, columns, 2 x rows]."""
    return first_half(_rows(tensor, settings, 2), settings)


def up_rows(tensor: Lazy, settings: Settings) -> Lazy:
    """As `gate_rows`, of the up projections."""
    return second_half(_rows(tensor, settings, 2), settings)


def down_rows(tensor: Lazy, settings: Settings) -> Lazy:
    """Return the down projections of experts that may be stored column by column."""
    return _rows(tensor, settings, 1)


def _rows(tensor: Lazy, settings: Settings, axis: int) -> Lazy:
    """Return experts with the model's width on this axis, transposed if need be. Raises ModelFileError."""
    if len(tensor.shape) != 3 or settings.width not in tensor.shape[1:]:
        raise ModelFileError(f"experts are {list(tensor.shape)}: by config.json one side has {settings.width}")
    return tensor if tensor.shape[axis] == settings.width else transpose_experts(tensor, settings)


def latent_keys(tensor: Lazy, settings: Settings) -> Lazy:
    """Take each head's keys of MLA's kv_b_proj, transposed: [heads, latent, dims without RoPE]."""
    heads, plain, values, latent = _latent(tensor, settings)
    return tensor.map(
        lambda x: x.reshape(heads, plain + values, latent)[:, :plain].swapaxes(1, 2), (heads, latent, plain)
    )


def latent_values(tensor: Lazy, settings: Settings) -> Lazy:
    """Take each head's values of MLA's kv_b_proj: [heads, value dims, latent]."""
    heads, plain, values, latent = _latent(tensor, settings)
    return tensor.map(lambda x: x.reshape(heads, plain + values, latent)[:, plain:], (heads, values, latent))


def _latent(tensor: Lazy, settings: Settings) -> tuple[int, int, int, int]:
    heads, plain, values = settings.heads, settings.count("qk_nope_head_dim"), settings.count("v_head_dim")
    if tensor.shape[0] != heads * (plain + values):
        raise ModelFileError(
            f"kv_b_proj has {tensor.shape[0]} rows, and by config.json it has {heads * (plain + values)}"
        )
    return heads, plain, values, tensor.shape[1]


def negative_exponential(tensor: Lazy, settings: Settings) -> Lazy:
    """Compute a state's decay from its logarithm."""
    return tensor.compute(lambda x: -np.exp(x))


def decay(tensor: Lazy, settings: Settings) -> Lazy:
    """Compute the decay as a column."""
    return column(negative_exponential(tensor, settings), settings)


def column(tensor: Lazy, settings: Settings) -> Lazy:
    """Reshape a vector to a column."""
    return tensor.map(lambda x: x[:, None], (*tensor.shape, 1))


def flat(tensor: Lazy, settings: Settings) -> Lazy:
    """Remove axes of length 1."""
    return tensor.map(np.squeeze, [n for n in tensor.shape if n > 1])


def state_groups(tensor: Lazy, settings: Settings) -> Lazy:
    """Reshape the weights of a norm over groups of a state to [groups, size]."""
    groups = settings.count("n_groups", 1)
    _divides(groups, tensor.shape[0], "weights of a norm")
    shape = (groups, tensor.shape[0] // groups)
    return tensor.map(lambda x: x.reshape(shape), shape)


def after_padding(tensor: Lazy, settings: Settings) -> Lazy:
    """Drop the first position embeddings: RoBERTa counts positions from the padding token + 1."""
    skipped = settings.count("pad_token_id", 1, least=0) + 1
    return tensor.map(lambda x: x[skipped:], (tensor.shape[0] - skipped, *tensor.shape[1:]))


def padded_rows(tensor: Lazy, settings: Settings) -> Lazy:
    """Append rows of zeros for the last tokens of the vocabulary: Gemma 3n has no second embedding of them."""
    size = max(settings.count("vocab_size"), tensor.shape[0])
    return tensor.map(lambda x: np.pad(x, ((0, size - len(x)), (0, 0))), (size, tensor.shape[1]))


# For a tensor with several targets in names.py, the part that each takes.
PARTS: dict[str, Edit] = {
    "ffn_gate_exps": first_half,
    "ffn_up_exps": second_half,
    "ffn_gate_shexp": first_half,
    "ffn_up_shexp": second_half,
    "attn_k_b": latent_keys,
    "attn_v_b": latent_values,
}


def _divides(parts: int, whole: int, what: str) -> None:
    if whole % parts:
        raise ModelFileError(f"{whole} {what} do not divide by {parts}: config.json belongs to another model")
