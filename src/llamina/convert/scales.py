"""Weights that are published quantized: DeepSeek's 8-bit floats become plain ones, gpt-oss' blocks GGUF's MXFP4."""

from collections.abc import Mapping

import numpy as np

from llamina.convert.lazy import BLOCKS, Array, Lazy, floats
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

_SCALE = "_scale_inv"


def unscaled(tensors: Mapping[str, Lazy], settings: Settings) -> dict[str, Lazy]:
    """The tensors with scales applied; other ways of quantizing are refused."""
    how = settings.get("quantization_config")
    if how is None:
        return dict(tensors)
    method = how.get("quant_method") if isinstance(how, dict) else how
    if method == "mxfp4":
        return _packed(tensors)
    if method != "fp8":
        raise UnsupportedModel(
            f"the folder is quantized by {method!r}, which llamina cannot undo: use the original model"
        )
    side = how.get("weight_block_size") or [128, 128]
    found = {name: tensor for name, tensor in tensors.items() if not name.endswith(_SCALE)}
    for name, scale in tensors.items():
        if name.endswith(_SCALE):
            weight = name.removesuffix(_SCALE)
            if weight not in found:
                raise ModelFileError(f"{name} has no weight beside it: fetch the rest of the folder")
            found[weight] = _scaled(found[weight], scale, (int(side[0]), int(side[1])), weight)
    return found


def _scaled(weight: Lazy, scale: Lazy, side: tuple[int, int], name: str) -> Lazy:
    rows, columns = weight.shape
    if scale.shape != (-(-rows // side[0]), -(-columns // side[1])):
        raise ModelFileError(f"{name} is {weight.shape}, and its scales are {scale.shape} for squares of {side}")

    def spread(values: Array) -> Array:
        factors = floats(scale.load(), scale.dtype)
        for i in range(factors.shape[0]):  # a band of squares at a time
            band = values[i * side[0] : (i + 1) * side[0]]
            band *= np.repeat(factors[i], side[1])[:columns]
        return values

    return weight.compute(spread)


def _packed(tensors: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """`NAME_blocks` [..., blocks, 16] and `NAME_scales` [..., blocks] → NAME, in blocks of a scale and 32 values."""
    found = {name: tensor for name, tensor in tensors.items() if not name.endswith(("_blocks", "_scales"))}
    for name, blocks in tensors.items():
        if name.endswith("_blocks"):
            scales = tensors.get(f"{name.removesuffix('_blocks')}_scales")
            if scales is None or blocks.shape != (*scales.shape, 16):
                raise ModelFileError(f"{name} has no scales that fit beside it: fetch the rest of the folder")
            found[name.removesuffix("_blocks")] = _repacked(blocks, scales)
    return found


def _repacked(blocks: Lazy, scales: Lazy) -> Lazy:
    """Bytes hold neighbours in transformers, in GGUF values 16 apart."""

    def pack() -> Array:
        pairs = blocks.load()
        nibbles = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(*scales.shape, 32)
        packed = nibbles[..., :16] | nibbles[..., 16:] << 4
        return np.concatenate((scales.load()[..., None], packed), axis=-1).reshape(*scales.shape[:-1], -1)

    return Lazy.of((*scales.shape[:-1], 32 * scales.shape[-1]), BLOCKS, pack)
