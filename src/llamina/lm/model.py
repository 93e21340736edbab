"""GPT-2 and Llama made of layers, from a config and named weights."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from llamina.convert.safetensors import read_json
from llamina.convert.settings import Settings
from llamina.engine.runner.load import weights_of
from llamina.errors import ContextTooLong, RequestError
from llamina.gguf import GGUF
from llamina.lm.config import GptConfig, LlamaConfig, ModelConfig
from llamina.lm.file import as_gguf
from llamina.lm.kv_cache import F32, PastKvCache
from llamina.lm.layers import (
    GptBlock,
    LayerNorm,
    LearnedPositionalEmbedding,
    Linear,
    LlamaBlock,
    RmsNorm,
    RotaryEmbedding,
    TokenEmbedding,
)
from llamina.lm.runner import Runner
from llamina.lm.weights import ModelWeights
from llamina.models import Decoder, build
from llamina.ops import Value, pick
from llamina.plan import Plan, record
from llamina.sampling import Sampler, Sampling
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.huggingface.metadata import tokenizer_metadata

C = TypeVar("C", bound=ModelConfig)


class LanguageModel(ABC, Generic[C]):
    """A model whose forward pass is written in layers, recorded, compiled, and run token by token or all at once.

    `vocabulary` are GGUF's keys of a tokenizer (`BpeTokenizer.metadata`). `backend` and the other `options` are those
    of `Runner`. Layers may be replaced before the first `forward`. Raises ModelFileError if weights do not fit.
    """

    config_type: ClassVar[type[ModelConfig]]

    def __init__(
        self,
        config: C,
        weights: ModelWeights,
        vocabulary: Mapping[str, Any] | None = None,
        *,
        context: int | None = None,
        **options: Any,
    ) -> None:
        weights.check(config)
        self.config = config
        self.weights = weights
        self.context = context or config.context
        if not 1 <= self.context <= config.context:
            raise RequestError(f"context is {context}: it must be from 1 to {config.context}", "context")
        self.file: GGUF = as_gguf(config, weights, vocabulary or {})
        self._options = options
        self.build(build(self.file.metadata, weights_of(self.file), self.context))

    @classmethod
    def read(cls, folder: str | os.PathLike[str], **options: Any) -> Self:
        """The model in a folder as transformers saves it: config.json, safetensors, and a tokenizer if there is one."""
        path = Path(folder)
        values = read_json(path / "config.json")
        config: Any = cls.config_type.from_json(values)
        vocabulary = None
        if (path / "tokenizer.json").is_file():
            vocabulary = tokenizer_metadata(path, Settings(values), config.vocab_size, None, [])
        return cls(config, ModelWeights.read(path), vocabulary, **options)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, which transformers and `llamina convert` read."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config.to_json(), indent=2), encoding="utf-8")
        self.weights.save(path / "model.safetensors")

    # ---- the forward pass ------------------------------------------------------------------------------------

    @abstractmethod
    def build(self, decoder: Decoder) -> None:
        """Make the layers of the weights, settings and GGUF names that the engine has for them."""

    @abstractmethod
    def __call__(self, tokens: Value, positions: Value) -> Value:
        """Write the forward pass down: tokens → logits of the wanted rows."""

    @cached_property
    def plan(self) -> Plan:
        """The forward pass as steps (`llamina.plan.show` prints it)."""
        return record(self)

    @cached_property
    def runner(self) -> Runner:
        """The plan, made runnable."""
        return Runner(self.plan, self.context, **self._options)

    def new_cache(self) -> PastKvCache:
        """An empty KV cache for one sequence."""
        return self.runner.new_cache()

    def forward(self, tokens: Sequence[int], past: PastKvCache | None = None) -> F32:
        """Logits after each token, [tokens, vocab]. Tokens go on where `past` ends, and are in it afterwards."""
        return self.runner.forward(tokens, past)

    # ---- generation ------------------------------------------------------------------------------------------

    def next_token(self, tokens: Sequence[int], past: PastKvCache | None = None) -> int:
        """The likeliest token after some."""
        return int(self.forward(tokens, past)[-1].argmax())

    def generate(
        self, tokens: Sequence[int], max_tokens: int = 32, *, stop: Container[int] | None = None, **sampling: Any
    ) -> Iterator[int]:
        """Yield tokens after a prompt until one is in `stop` (by default those that end a text), or the context ends.

        `sampling` are parameters of `llamina.Sampling`; temperature=0 is greedy. After the prompt, each step computes
        one token: those before it are in the KV cache. Raises ContextTooLong for a prompt that leaves no room.
        """
        sampler = Sampler(Sampling(**sampling), self.config.vocab_size)
        ends = stop if stop is not None else self.tokenizer.eog if self.tokenizer else ()
        known, fresh = list(tokens), list(tokens)
        if len(known) >= self.context:
            raise ContextTooLong(
                f"the prompt has {len(known)} tokens: with a context of {self.context} it must have fewer", "tokens"
            )
        with self.new_cache() as past:
            for _ in range(min(max_tokens, self.context - len(known))):
                token = sampler.sample(self.forward(fresh, past)[-1], known)
                if token in ends:
                    return
                yield token
                fresh = [token]
                known.append(token)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the vocabulary; None without one."""
        return Tokenizer.from_metadata(self.file.metadata) if "tokenizer.ggml.model" in self.file.metadata else None

    @property
    def n_params(self) -> int:
        return self.config.n_params

    def close(self) -> None:
        """End the backend's threads."""
        if "runner" in self.__dict__:
            self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Gpt2Model(LanguageModel[GptConfig]):
    """GPT-2. Layers have the names that Hugging Face gives them."""

    config_type = GptConfig

    def build(self, decoder: Decoder) -> None:
        w, config = decoder.weights, decoder.config
        self.wte = TokenEmbedding(w.token_embd)
        self.wpe = LearnedPositionalEmbedding(w.position_embd)
        self.h = [GptBlock(w.layer(i), config, i, decoder.attention) for i in range(config.layers)]
        self.ln_f = LayerNorm(w.output_norm, config.eps)
        self.lm_head = Linear(w.token_embd)  # the embeddings again: a logit is how much a row resembles a token's

    def __call__(self, tokens: Value, positions: Value) -> Value:
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(pick(x)))


class LlamaModel(LanguageModel[LlamaConfig]):
    """Llama 2 and 3. Layers have the names that Hugging Face gives them."""

    config_type = LlamaConfig

    def build(self, decoder: Decoder) -> None:
        w, config = decoder.weights, decoder.config
        rotary = RotaryEmbedding(config.rope(neox=False), decoder.rope_factors)
        self.embed_tokens = TokenEmbedding(w.token_embd)
        self.layers = [LlamaBlock(w.layer(i), config, i, decoder.attention, rotary) for i in range(config.layers)]
        self.norm = RmsNorm(w.output_norm, config.eps)
        self.lm_head = Linear(w.get("output") or w.token_embd)

    def __call__(self, tokens: Value, positions: Value) -> Value:
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x)
        return self.lm_head(self.norm(pick(x)))
