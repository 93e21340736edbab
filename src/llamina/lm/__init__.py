"""A small library to learn from: tokenizers, layers, GPT-2 and Llama by hand, on the engine's operations and backends.

Nothing here computes by itself. A layer is a few operations of `llamina.ops`; a model of layers is recorded into a
plan, which a backend compiles. docs/tour.ipynb is the tour.
"""

from llamina.lm.builder import BpeBuilder
from llamina.lm.config import GptConfig, LlamaConfig, ModelConfig
from llamina.lm.kv_cache import LayerKvCache, PastKvCache
from llamina.lm.layers import (
    GptBlock,
    Layer,
    LayerNorm,
    LearnedPositionalEmbedding,
    Linear,
    LlamaBlock,
    MlpFfn,
    MultiHeadAttention,
    RmsNorm,
    RotaryEmbedding,
    SwiGluFfn,
    TokenEmbedding,
)
from llamina.lm.model import Gpt2Model, LanguageModel, LlamaModel
from llamina.lm.runner import Runner
from llamina.lm.tokenizer import BpeTokenizer, Vocab
from llamina.lm.weights import ModelWeights

__all__ = [
    "BpeBuilder",
    "BpeTokenizer",
    "Gpt2Model",
    "GptBlock",
    "GptConfig",
    "LanguageModel",
    "Layer",
    "LayerKvCache",
    "LayerNorm",
    "LearnedPositionalEmbedding",
    "Linear",
    "LlamaBlock",
    "LlamaConfig",
    "LlamaModel",
    "MlpFfn",
    "ModelConfig",
    "ModelWeights",
    "MultiHeadAttention",
    "PastKvCache",
    "RmsNorm",
    "RotaryEmbedding",
    "Runner",
    "SwiGluFfn",
    "TokenEmbedding",
    "Vocab",
]
