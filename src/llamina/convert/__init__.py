"""Converts Hugging Face folders (config.json, safetensors, a tokenizer) to GGUF files."""

from llamina.convert.write import FILE_TYPES, Converted, convert

__all__ = ["FILE_TYPES", "Converted", "convert"]
