"""How tensors change on their way to GGUF: rows in another order, a shift, a part of a fused matrix."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from llamina.convert.lazy import BLOCKS, Array, Lazy
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError

Edit: TypeAlias = Callable[[Lazy, Settings], Lazy]


def interleave_queries(tensor: Lazy, settings: Settings) -> Lazy:
    """Rows for a rotation of neighbours, where transformers turns the first half of a head against the second."""
    return _interleave(tensor, settings.heads)


def interleave_keys(tensor: Lazy, settings: Settings) -> Lazy:
    return _interleave(tensor, settings.kv_heads)


def _interleave(tensor: Lazy, heads: int) -> Lazy:
    rows, rest = tensor.shape[0], tensor.shape[1:]
    _divides(2 * heads, rows, "rows of a query or key matrix")
    return tensor.map(lambda x: x.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(x.shape))


def plus_one(tensor: Lazy, settings: Settings) -> Lazy:
    """Gemma multiplies by 1 + weight."""
    return tensor.compute(lambda x: x + np.float32(1))


def transpose(tensor: Lazy, settings: Settings) -> Lazy:
    """GPT-2 has columns where others have rows."""
    return tensor.map(np.transpose, tensor.shape[::-1])


def ungroup_heads(tensor: Lazy, settings: Settings) -> Lazy:
    """Each head's q, k and v together [heads, 3, dim, ...] → all q, all k, all v."""
    return _ungroup(tensor, settings.heads, 1)


def ungroup_falcon(tensor: Lazy, settings: Settings) -> Lazy:
    """Queries with the key and value they share [kv heads, queries + 2, dim, ...] → all q, all k, all v."""
    groups = falcon_kv_heads(settings)
    return _ungroup(tensor, groups, settings.heads // groups)


def falcon_kv_heads(settings: Settings) -> int:
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
    """The gates, from gates and ups in one matrix (of each expert) [..., 2 x rows, columns]."""
    return _half(tensor, 0)


def second_half(tensor: Lazy, settings: Settings) -> Lazy:
    return _half(tensor, 1)


def _half(tensor: Lazy, which: int) -> Lazy:
    *experts, rows, columns = tensor.shape
    _divides(2, rows, "rows of gates and ups")
    half = rows // 2
    return tensor.map(lambda x: x[..., which * half : (which + 1) * half, :], (*experts, half, columns))


def even(tensor: Lazy, settings: Settings) -> Lazy:
    """The gates of gpt-oss: every other column of gates and ups [experts, columns, 2 x rows], or element of a bias."""
    return _every_other(tensor, 0)


def odd(tensor: Lazy, settings: Settings) -> Lazy:
    return _every_other(tensor, 1)


def _every_other(tensor: Lazy, which: int) -> Lazy:
    tensor = transpose_experts(tensor, settings=None)
    experts, rows, *columns = tensor.shape
    return tensor.map(lambda x: x[:, which::2], (experts, rows // 2, *columns))


def transpose_experts(tensor: Lazy, settings: Settings | None) -> Lazy:
    """Matrices of gpt-oss' experts, whose columns are rows elsewhere; not its biases, nor what is in blocks already."""
    if len(tensor.shape) < 3 or tensor.dtype == BLOCKS:
        return tensor
    experts, columns, rows = tensor.shape
    return tensor.map(lambda x: x.swapaxes(1, 2), (experts, rows, columns))


def latent_keys(tensor: Lazy, settings: Settings) -> Lazy:
    """Of the matrix that expands the latent, each head's keys, transposed: [heads, latent, plain dims]."""
    heads, plain, values, latent = _latent(tensor, settings)
    return tensor.map(
        lambda x: x.reshape(heads, plain + values, latent)[:, :plain].swapaxes(1, 2), (heads, latent, plain)
    )


def latent_values(tensor: Lazy, settings: Settings) -> Lazy:
    """Of the matrix that expands the latent, each head's values: [heads, value dims, latent]."""
    heads, plain, values, latent = _latent(tensor, settings)
    return tensor.map(lambda x: x.reshape(heads, plain + values, latent)[:, plain:], (heads, values, latent))


def _latent(tensor: Lazy, settings: Settings) -> tuple[int, int, int, int]:
    heads, plain, values = settings.heads, settings.count("qk_nope_head_dim"), settings.count("v_head_dim")
    if tensor.shape[0] != heads * (plain + values):
        raise ModelFileError(
            f"kv_b_proj has {tensor.shape[0]} rows, and config.json speaks of {heads * (plain + values)}"
        )
    return heads, plain, values, tensor.shape[1]


def negative_exponential(tensor: Lazy, settings: Settings) -> Lazy:
    """The logarithm of a state's decay → the decay."""
    return tensor.compute(lambda x: -np.exp(x))


def decay(tensor: Lazy, settings: Settings) -> Lazy:
    """The same, as a column."""
    return column(negative_exponential(tensor, settings), settings)


def column(tensor: Lazy, settings: Settings) -> Lazy:
    return tensor.map(lambda x: x[:, None], (*tensor.shape, 1))


def flat(tensor: Lazy, settings: Settings) -> Lazy:
    """Axes of length 1 taken out."""
    return tensor.map(np.squeeze, [n for n in tensor.shape if n > 1])


def state_groups(tensor: Lazy, settings: Settings) -> Lazy:
    """A norm over each group of a state."""
    groups = settings.count("n_groups", 1)
    _divides(groups, tensor.shape[0], "weights of a norm")
    shape = (groups, tensor.shape[0] // groups)
    return tensor.map(lambda x: x.reshape(shape), shape)


def after_padding(tensor: Lazy, settings: Settings) -> Lazy:
    """Positions that RoBERTa counts from behind the padding token."""
    skipped = settings.count("pad_token_id", 1, least=0) + 1
    return tensor.map(lambda x: x[skipped:], (tensor.shape[0] - skipped, *tensor.shape[1:]))


# Where names.py gives a tensor several results, the part that each takes.
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
        raise ModelFileError(f"{whole} {what} do not divide by {parts}: config.json is of another model")
