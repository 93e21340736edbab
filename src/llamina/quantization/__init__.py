"""Quantizing GGUF files: the type of each tensor by file type or by measured error, importance matrices, writing."""

from llamina.quantization.auto import auto_quantize, choose_types
from llamina.quantization.imatrix import Imatrix
from llamina.quantization.types import FILE_TYPES, Options
from llamina.quantization.write import Change, Quantized, plan, quantize

__all__ = [
    "FILE_TYPES",
    "Change",
    "Imatrix",
    "Options",
    "Quantized",
    "auto_quantize",
    "choose_types",
    "plan",
    "quantize",
]
