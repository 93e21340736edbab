"""LoRA adapters: files of llama.cpp and folders of PEFT → pairs of thin matrices by GGUF's names."""

from llamina.adapters.adapter import Adapter
from llamina.adapters.read import read_adapter

__all__ = ["Adapter", "read_adapter"]
