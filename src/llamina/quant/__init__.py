"""Block formats: their layout, decoding in NumPy (the truth that kernels are held to), and encoding."""

from llamina.quant.format import FORMATS, Format, decode, encode, format_of

__all__ = ["FORMATS", "Format", "decode", "encode", "format_of"]
