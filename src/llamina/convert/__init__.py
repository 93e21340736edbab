"""Hugging Face folders (config.json, safetensors, a tokenizer) → GGUF files. Knows names and layouts of models."""

from llamina.convert.write import FILE_TYPES, Converted, convert

__all__ = ["FILE_TYPES", "Converted", "convert"]
