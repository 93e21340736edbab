"""Quantizing GGUF files: the type of each tensor by file type, importance matrices, writing the new file."""

from llamina.quantization.imatrix import Imatrix
from llamina.quantization.types import FILE_TYPES, Options
from llamina.quantization.write import Change, Quantized, plan, quantize

__all__ = ["FILE_TYPES", "Change", "Imatrix", "Options", "Quantized", "plan", "quantize"]
