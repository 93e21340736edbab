"""MiniMax M3: normed q and k, gpt-oss' gate, experts by sigmoid and bias beside a shared one.

Past the dense layers each key head attends to the blocks of positions that its index head finds best.
"""

from llamina.models.blocks import query_key_value, sparse_mlp
from llamina.models.decoder import Decoder
from llamina.models.weights import Weights
from llamina.ops import Attention, Selection, Value, attend, flat, heads, linear, rope, select


class Model(Decoder):
    def setup(self) -> None:
        c = self.config
        self.rope = c.rope(neox=True)
        self.dense_layers = c.count("leading_dense_block_count", 0, least=0)
        self.routing = c.routing("sigmoid")
        self.choice = Selection(
            c.context,
            c.count("attention.indexer.top_k"),
            c.count("attention.indexer.block_size"),
            c.count("attention.indexer.local_blocks", least=0),
        )
        self.params = Attention(c.head_dim**-0.5, block=self.choice.block)

    def block(self, x: Value, w: Weights, layer: int) -> Value:
        h = self.norm(x, w.attn_norm)
        q, k, v = query_key_value(h, w, self.config, layer)
        q, k = rope(self.norm(q, w.attn_q_norm), self.rope), rope(self.norm(k, w.attn_k_norm), self.rope)
        x = x + linear(flat(attend(q, k, v, layer, self.params, selected=self.chosen(h, w, layer))), w.attn_output)
        return x + sparse_mlp(self.norm(x, w.ffn_norm), w, self.routing, "swiglu_oai")

    def chosen(self, h: Value, w: Weights, layer: int) -> Value | None:
        """The blocks worth attending to, unless there is room for all."""
        if layer < self.dense_layers or self.choice.top * self.choice.block >= self.config.context:
            return None
        indexer = w.part("indexer")
        q = heads(linear(h, indexer.q_proj), self.config.count("attention.indexer.head_count"))
        q = rope(self.norm(q, indexer.q_norm), self.rope)
        k = rope(self.norm(heads(linear(h, indexer.k_proj), 1), indexer.k_norm), self.rope)
        return select(q, k, layer, self.choice)
