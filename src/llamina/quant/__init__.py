"""Quantization formats: block layouts, dequantization in NumPy (the reference for kernels), and quantization."""

from llamina.quant.format import FORMATS, Format, decode, encode, format_of

__all__ = ["FORMATS", "Format", "decode", "encode", "format_of"]
