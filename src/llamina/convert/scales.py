"""Weights of 8-bit floats with a scale per square of a matrix, as DeepSeek publishes them → plain floats."""

from collections.abc import Mapping

import numpy as np

from llamina.convert.lazy import Array, Lazy, floats
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError, UnsupportedModel

_SCALE = "_scale_inv"


def unscaled(tensors: Mapping[str, Lazy], settings: Settings) -> dict[str, Lazy]:
    """The tensors with scales applied; other ways of quantizing are refused."""
    how = settings.get("quantization_config")
    if how is None:
        return dict(tensors)
    method = how.get("quant_method") if isinstance(how, dict) else how
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
