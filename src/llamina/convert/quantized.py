"""Weights that are published quantized: DeepSeek's FP8 is dequantized, gpt-oss' MXFP4 repacked for GGUF."""

from collections.abc import Mapping

import numpy as np

from llamina.convert.lazy import BLOCKS, Array, Lazy, floats
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

_SCALE = "_scale_inv"


def dequantized(tensors: Mapping[str, Lazy], settings: Settings) -> dict[str, Lazy]:
    """Return the tensors with scales applied. Raises UnsupportedModel for other quantizations."""
    config = settings.get("quantization_config")
    if config is None:
        return dict(tensors)
    method = config.get("quant_method") if isinstance(config, dict) else config
    if method == "mxfp4":
        return _packed(tensors)
    if method != "fp8":
        raise UnsupportedModel(
            f"the folder is quantized by {method!r}, which llamina cannot dequantize: use the original model"
        )
    side = config.get("weight_block_size") or [128, 128]
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(_SCALE)}
    for name, scale in tensors.items():
        if name.endswith(_SCALE):
            weight = name.removesuffix(_SCALE)
            if weight not in weights:
                raise ModelFileError(f"{name} has no weight beside it: fetch the rest of the folder")
            weights[weight] = _scaled(weights[weight], scale, (int(side[0]), int(side[1])), weight)
    return weights


def _scaled(weight: Lazy, scale: Lazy, side: tuple[int, int], name: str) -> Lazy:
    rows, columns = weight.shape
    if scale.shape != (-(-rows // side[0]), -(-columns // side[1])):
        raise ModelFileError(f"{name} is {weight.shape}, and its scales are {scale.shape} for squares of {side}")

    def scale_values(values: Array) -> Array:
        factors = floats(scale.load(), scale.dtype)
        for i in range(factors.shape[0]):  # a row of squares at a time
            band = values[i * side[0] : (i + 1) * side[0]]
            band *= np.repeat(factors[i], side[1])[:columns]
        return values

    return weight.compute(scale_values)


def _packed(tensors: Mapping[str, Lazy]) -> dict[str, Lazy]:
    """Join `NAME_blocks` [..., blocks, 16] and `NAME_scales` [..., blocks] to NAME, in blocks of GGUF's MXFP4."""
    joined = {name: tensor for name, tensor in tensors.items() if not name.endswith(("_blocks", "_scales"))}
    for name, blocks in tensors.items():
        if name.endswith("_blocks"):
            scales = tensors.get(f"{name.removesuffix('_blocks')}_scales")
            if scales is None or blocks.shape != (*scales.shape, 16):
                raise ModelFileError(f"{name} has no scales of its shape: fetch the rest of the folder")
            joined[name.removesuffix("_blocks")] = _repacked(blocks, scales)
    return joined


def _repacked(blocks: Lazy, scales: Lazy) -> Lazy:
    """Repack nibbles: a byte has adjacent values in transformers, values 16 apart in GGUF."""

    def pack() -> Array:
        pairs = blocks.load()
        nibbles = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(*scales.shape, 32)
        packed = nibbles[..., :16] | nibbles[..., 16:] << 4
        return np.concatenate((scales.load()[..., None], packed), axis=-1).reshape(*scales.shape[:-1], -1)

    return Lazy.of((*scales.shape[:-1], 32 * scales.shape[-1]), BLOCKS, pack)
