"""Hyperparameters of GPT-2 and Llama: sizes with names, presets of published models, config.json."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Self

from llamina.convert.settings import Settings
from llamina.errors import RequestError, UnsupportedModel, check_whole

Shape = tuple[int, ...]


class ModelConfig(ABC):
    """What both configs have. It holds no weights: `shapes` says which there must be."""

    n_layers: int
    n_heads: int
    vocab_size: int

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers of an embedding, and of each row between layers."""

    @property
    @abstractmethod
    def context(self) -> int:
        """The most tokens of a sequence."""

    @property
    def head_dim(self) -> int:
        """Numbers of a head's query, key or value."""
        return self.width // self.n_heads

    @property
    def n_params(self) -> int:
        return sum(prod(shape) for shape in self.shapes().values())

    @abstractmethod
    def shapes(self) -> dict[str, Shape]:
        """Every weight by its name in Hugging Face's files."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The contents of Hugging Face's config.json."""

    @classmethod
    @abstractmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The config in a config.json. Raises UnsupportedModel for another kind of model."""


@dataclass(frozen=True, slots=True)
class GptConfig(ModelConfig):
    """A GPT-2: learned positions, LayerNorm, as many key heads as query heads, an MLP with GELU, tied embeddings."""

    n_layers: int
    n_heads: int
    n_embd: int
    n_positions: int
    vocab_size: int
    ffn_intermediate: int
    layer_norm_eps: float = 1e-5
    others: Mapping[str, Any] = field(default_factory=dict)  # further keys of config.json, kept as they are

    def __post_init__(self) -> None:
        _check_counts(self, "n_layers", "n_heads", "n_embd", "n_positions", "vocab_size", "ffn_intermediate")
        _check_positive(self, "layer_norm_eps")
        _check_divides(self, "n_heads", "n_embd")

    @classmethod
    def gpt2_small(cls) -> Self:
        """GPT-2 with 124 million weights."""
        return cls(12, 12, 768, 1024, 50257, 3072)

    @classmethod
    def gpt2_medium(cls) -> Self:
        """GPT-2 with 355 million weights."""
        return cls(24, 16, 1024, 1024, 50257, 4096)

    @classmethod
    def gpt2_large(cls) -> Self:
        """GPT-2 with 774 million weights."""
        return cls(36, 20, 1280, 1024, 50257, 5120)

    @classmethod
    def gpt2_xl(cls) -> Self:
        """GPT-2 with 1.56 billion weights."""
        return cls(48, 25, 1600, 1024, 50257, 6400)

    @classmethod
    def tiny(cls) -> Self:
        """A GPT-2 for tests: 2 layers of 2 heads, 8 wide, 16 tokens."""
        return cls(2, 2, 8, 32, 16, 16)

    @property
    def width(self) -> int:
        return self.n_embd

    @property
    def context(self) -> int:
        return self.n_positions

    def shapes(self) -> dict[str, Shape]:
        d, f = self.n_embd, self.ffn_intermediate
        block: dict[str, Shape] = {}
        for name, (rows, columns) in {  # GPT-2's files have matrices as [in, out]
            "attn.c_attn": (d, 3 * d),
            "attn.c_proj": (d, d),
            "mlp.c_fc": (d, f),
            "mlp.c_proj": (f, d),
        }.items():
            block |= {f"{name}.weight": (rows, columns), f"{name}.bias": (columns,)}
        block |= {f"{norm}.{part}": (d,) for norm in ("ln_1", "ln_2") for part in ("weight", "bias")}
        ends = {"wte.weight": (self.vocab_size, d), "wpe.weight": (self.n_positions, d)}
        last: dict[str, Shape] = {"ln_f.weight": (d,), "ln_f.bias": (d,)}
        return {f"transformer.{name}": shape for name, shape in {**ends, **_layers("h", self, block), **last}.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "activation_function": "gelu_new",
            **self.others,
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_layer": self.n_layers,
            "n_head": self.n_heads,
            "n_embd": self.n_embd,
            "n_positions": self.n_positions,
            "n_inner": self.ffn_intermediate,
            "vocab_size": self.vocab_size,
            "layer_norm_epsilon": self.layer_norm_eps,
            "tie_word_embeddings": True,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        _check_kind(values, "gpt2")
        s = Settings(values)
        return cls(
            n_layers=s.layers,
            n_heads=s.heads,
            n_embd=s.width,
            n_positions=s.context,
            vocab_size=s.count("vocab_size"),
            ffn_intermediate=s.count("n_inner", 4 * s.width),
            layer_norm_eps=s.number("layer_norm_epsilon", 1e-5),
            others=values,
        )


@dataclass(frozen=True, slots=True)
class LlamaConfig(ModelConfig):
    """A Llama 2 or 3 or a Mistral: RoPE, RMSNorm, grouped-query attention (GQA), a SwiGLU MLP, a head of its own."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    hidden_dim: int
    intermediate_dim: int
    max_position_embeddings: int
    vocab_size: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)  # further keys of config.json, kept as they are

    def __post_init__(self) -> None:
        _check_counts(self, "n_layers", "n_heads", "n_kv_heads", "hidden_dim", "intermediate_dim")
        _check_counts(self, "max_position_embeddings", "vocab_size")
        _check_positive(self, "rms_norm_eps", "rope_theta")
        _check_divides(self, "n_kv_heads", "n_heads")
        if "head_dim" not in self.others:
            _check_divides(self, "n_heads", "hidden_dim")
        if self.head_dim % 2:
            raise RequestError(f"a head has {self.head_dim} numbers: it must be an even number, as RoPE turns pairs")

    @classmethod
    def llama2_7b(cls) -> Self:
        return cls(32, 32, 32, 4096, 11008, 4096, 32000)

    @classmethod
    def llama2_13b(cls) -> Self:
        return cls(40, 40, 40, 5120, 13824, 4096, 32000)

    @classmethod
    def llama3_8b(cls) -> Self:
        """Llama 3 8B: four query heads share a key head."""
        return cls(32, 32, 8, 4096, 14336, 8192, 128256, rope_theta=500000.0)

    @classmethod
    def mistral_7b(cls) -> Self:
        """Mistral 7B, without its sliding window."""
        return cls(32, 32, 8, 4096, 14336, 32768, 32000)

    @classmethod
    def phi2(cls) -> Self:
        """A Llama of the size of Phi-2, whose own layers are of another kind."""
        return cls(32, 32, 32, 2560, 10240, 2048, 51200)

    @classmethod
    def tiny(cls) -> Self:
        """A Llama for tests: 2 layers of 4 query heads and 2 key heads, 8 wide, 16 tokens."""
        return cls(2, 4, 2, 8, 12, 32, 16)

    @property
    def width(self) -> int:
        return self.hidden_dim

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    @property
    def head_dim(self) -> int:
        return int(self.others.get("head_dim") or self.hidden_dim // self.n_heads)

    @property
    def gqa_factor(self) -> int:
        """How many query heads share a key head."""
        return self.n_heads // self.n_kv_heads

    def shapes(self) -> dict[str, Shape]:
        d, f = self.hidden_dim, self.intermediate_dim
        q, k = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        attention = {"q_proj": (q, d), "k_proj": (k, d), "v_proj": (k, d), "o_proj": (d, q)}
        mlp = {"gate_proj": (f, d), "up_proj": (f, d), "down_proj": (d, f)}
        block: dict[str, Shape] = {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
        for part, matrices, biased in (("self_attn", attention, "attention_bias"), ("mlp", mlp, "mlp_bias")):
            for name, shape in matrices.items():
                block[f"{part}.{name}.weight"] = shape
                if self.others.get(biased):
                    block[f"{part}.{name}.bias"] = shape[:1]
        found: dict[str, Shape] = {"model.embed_tokens.weight": (self.vocab_size, d)}
        found |= _layers("model.layers", self, block) | {"model.norm.weight": (d,)}
        return found if self.tie_word_embeddings else {**found, "lm_head.weight": (self.vocab_size, d)}

    def to_json(self) -> dict[str, Any]:
        rope = self.others.get("rope_parameters") or self.others.get("rope_scaling") or {"rope_type": "default"}
        return {
            "hidden_act": "silu",
            **self.others,
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_kv_heads,
            "hidden_size": self.hidden_dim,
            "intermediate_size": self.intermediate_dim,
            "max_position_embeddings": self.max_position_embeddings,
            "vocab_size": self.vocab_size,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_parameters": {**rope, "rope_theta": self.rope_theta},
            "tie_word_embeddings": self.tie_word_embeddings,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        _check_kind(values, "llama", "mistral")
        if values.get("sliding_window") is not None:
            raise UnsupportedModel(
                f"config.json: sliding_window is {values['sliding_window']}: a LlamaConfig has none; "
                "set it to null if sequences are shorter"
            )
        s = Settings(values)
        return cls(
            n_layers=s.layers,
            n_heads=s.heads,
            n_kv_heads=s.kv_heads,
            hidden_dim=s.width,
            intermediate_dim=s.count("intermediate_size"),
            max_position_embeddings=s.context,
            vocab_size=s.count("vocab_size"),
            rms_norm_eps=s.number("rms_norm_eps", 1e-6),
            rope_theta=s.rope.number("rope_theta", s.number("rope_theta", 10000.0)),
            tie_word_embeddings=bool(s.get("tie_word_embeddings", False)),
            others=values,
        )


def _layers(prefix: str, config: ModelConfig, block: Mapping[str, Shape]) -> dict[str, Shape]:
    return {f"{prefix}.{i}.{name}": shape for i in range(config.n_layers) for name, shape in block.items()}


def _check_kind(values: Mapping[str, Any], *kinds: str) -> None:
    if values.get("model_type") not in kinds:
        raise UnsupportedModel(
            f"config.json: model_type is {values.get('model_type')!r}, and must be {' or '.join(kinds)} here: "
            "convert the folder to GGUF and load that"
        )


def _check_counts(config: ModelConfig, *names: str) -> None:
    for name in names:
        check_whole(name, getattr(config, name), 1)


def _check_positive(config: ModelConfig, *names: str) -> None:
    for name in names:
        if not getattr(config, name) > 0:
            raise RequestError(f"{name} is {getattr(config, name)!r}: it must be a number above 0", name)


def _check_divides(config: ModelConfig, part: str, whole: str) -> None:
    n, m = getattr(config, part), getattr(config, whole)
    if m % n:
        raise RequestError(f"{part} is {n} and {whole} is {m}: {part} must divide {whole}", part)
