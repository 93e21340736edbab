"""Reads LoRA adapters, llama.cpp's files and PEFT's folders: pairs of low-rank matrices by GGUF's names."""

from llamina.adapters.adapter import Adapter
from llamina.adapters.read import read_adapter

__all__ = ["Adapter", "read_adapter"]
