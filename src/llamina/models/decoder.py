"""The frame every decoder shares: embed, blocks, norm, head. An architecture writes `block` and what differs."""

from abc import ABC, abstractmethod
from typing import Literal

from llamina.errors import UnsupportedModel
from llamina.models.config import Config
from llamina.models.weights import Weights
from llamina.ops import Activation, Attention, Value, Weight, activate, embed, given, linear, norm, pick


class Decoder(ABC):
    """One model: its config and weights. `forward` is ordinary code over values and is recorded by running it."""

    norm_kind: Literal["rms", "layer"] = "rms"
    causal = True  # if not, attention is bidirectional, and a sequence is computed in one step
    headless = False  # whether it ends with hidden states, for embeddings, and has no output matrix
    classifier_activation: Activation = "tanh"

    def __init__(self, config: Config, weights: Weights) -> None:
        self.causal = config.flag("attention.causal", self.causal)
        # Whether the classifier scores the mean of a text's hidden states, instead of one of them.
        self.ranks_mean = config.count("classifier.pooling_type", 0, least=0) == 1
        self.config = config
        self.weights = weights
        self.setup()

    def setup(self) -> None:  # noqa: B027 (most have nothing of their own to read)
        """Read what is particular to the architecture, once."""

    def forward(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        """Logits of the wanted rows; their hidden states, where there is no output matrix."""
        if self.headless:
            return self.hidden(tokens, positions, rows)
        logits = self.head(self.hidden(tokens, positions, rows))
        vocab = self.embeddings.shape[0]
        if logits.shape != (vocab,):  # a sampled token must have an embedding
            raise UnsupportedModel(f"the file has {vocab} embeddings and {logits.size} outputs: they must be as many")
        return logits

    def hidden(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        """The wanted rows as the head sees them: what embeddings are made of."""
        x = self.embed(tokens, positions)
        return self.last_norm(pick(self.blocks(x if rows is None else given(x, rows))))

    def rank(self, tokens: Value, positions: Value, rows: Value | None = None) -> Value:
        """The classifier's scores of the wanted rows, or of means that are given as rows."""
        if self.ranks_mean and rows is not None:
            return self.classify(pick(given(self.embed(tokens, positions), rows)))
        return self.classify(self.hidden(tokens, positions, rows))

    def blocks(self, x: Value) -> Value:
        """All layers, one after the other."""
        for layer in range(self.config.layers):
            x = self.block(x, self.weights.layer(layer), layer)
        return x

    @abstractmethod
    def block(self, x: Value, w: Weights, layer: int) -> Value:
        """One layer, residual connections included."""

    def embed(self, tokens: Value, positions: Value) -> Value:
        return embed(tokens, self.embeddings)

    def norm(self, x: Value, w: Weight | None) -> Value:
        return norm(x, w, self.config.eps, self.norm_kind)

    def last_norm(self, x: Value) -> Value:
        return self.norm(x, self.weights.output_norm)

    def head(self, x: Value) -> Value:
        """The output matrix; a file without one has tied it to the embeddings."""
        return linear(x, self.weights.get("output") or self.embeddings)

    def classify(self, x: Value) -> Value:
        """The file's classifier: a layer and an output matrix, or one of them."""
        dense, output = self.weights.get("cls"), self.weights.get("cls.output")
        if dense is None and output is None:
            raise UnsupportedModel("the file has no classifier (cls.output.weight): it cannot rank")
        if dense:
            x = activate(linear(x, dense.shaped(dense.size // x.size, x.size)), self.classifier_activation)
            x = self.norm(x, normed) if (normed := self.weights.get("cls.norm")) else x
        return linear(x, output.shaped(output.size // x.size, x.size)) if output else x

    @property
    def embeddings(self) -> Weight:
        """A row per token; a file without them has tied them to the output matrix."""
        return self.weights.get("token_embd") or self.weights.output

    @property
    def width(self) -> int:
        """Of an embedding."""
        return self.embeddings.shape[1]

    @property
    def row_width(self) -> int:
        """Of a row that takes the place of an embedding; some have parts for later layers behind it."""
        return self.width

    @property
    def rope_factors(self) -> Weight | None:
        """Divisors of the frequencies: llama3's factors, or LongRoPE's for contexts up to or past the first trained."""
        reach = "long" if self.config.context > self.config.original_context else "short"
        return self.weights.get("rope_freqs") or self.weights.get(f"rope_factors_{reach}")

    @property
    def attention(self) -> Attention:
        scale = self.config.number("attention.scale", 0.0) or self.config.head_dim**-0.5
        return Attention(scale, causal=self.causal)
