"""Converts Hugging Face folders (config.json, safetensors, a tokenizer) to GGUF files, quantized if asked."""

from llamina.convert.write import FILE_TYPES, Converted, convert

__all__ = ["FILE_TYPES", "Converted", "convert"]
