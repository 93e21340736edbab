"""Hugging Face's names of an encoder's modules → GGUF's. `v.` is of pictures, `a.` of sounds, `mm.` the projector."""

from collections.abc import Mapping


def _blocks(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    """Names in layers, on both sides in the encoder that the prefix begins with."""
    root = prefix[0]
    return {f"{prefix}.*.{t}": " ".join(f"{root}.blk.*.{name}" for name in o.split()) for t, o in names.items()}


_QUERIES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v"}
_SELF = {f"self_attn.{name}": ours for name, ours in _QUERIES.items()} | {"self_attn.out_proj": "attn_out"}
_ATTENTION = {f"attention.{name}": ours for name, ours in _QUERIES.items()}
_FUSED = {"attn.qkv": "attn_q attn_k attn_v", "attn.proj": "attn_out", "norm1": "ln1", "norm2": "ln2"}
_MLP = {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
_GATED = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_FILM = {"v.patch_embed.proj.weight": "v.patch_embd.weight v.patch_embd.weight.1"}

VIT = {
    "v.embeddings.class_embedding": "v.class_embd",
    "v.embeddings.patch_embedding": "v.patch_embd",
    "v.embeddings.position_embedding": "v.position_embd",
    "v.pre_layrnorm": "v.pre_ln",
    "v.post_layernorm": "v.post_ln",
} | _blocks("v.encoder.layers", _SELF | _MLP | {"layer_norm1": "ln1", "layer_norm2": "ln2"})
LLAVA = VIT | {"mm.linear_1": "mm.0", "mm.linear_2": "mm.2", "image_newline": "v.image_newline"}
IDEFICS = VIT | {"mm.modality_projection.proj": "mm.model.fc"}
GEMMA = VIT | {"mm.mm_input_projection_weight": "mm.input_projection.weight", "mm.mm_soft_emb_norm": "mm.soft_emb_norm"}
PIXTRAL = {
    "v.patch_conv": "v.patch_embd",
    "v.ln_pre": "v.pre_ln",
    "mm.linear_1": "mm.1",
    "mm.linear_2": "mm.2",
    "mm.norm": "mm.input_norm",
    "mm.patch_merger.merging_layer": "mm.patch_merger",
} | _blocks(
    "v.transformer.layers",
    _ATTENTION
    | {
        "attention.o_proj": "attn_out",
        "attention_norm": "ln1",
        "ffn_norm": "ln2",
        "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down",
    },
)
QWEN = _FILM | {"v.merger.ln_q": "v.post_ln", "v.merger.mlp.*": "mm.*"} | _blocks("v.blocks", _FUSED | _MLP | _GATED)
QWEN3 = (
    _FILM
    | {
        "v.patch_embed.proj": "v.patch_embd",
        "v.pos_embed": "v.position_embd",
        "v.merger.norm": "v.post_ln",
        "v.merger.linear_fc1": "mm.0",
        "v.merger.linear_fc2": "mm.2",
        "v.deepstack.*.norm": "v.deepstack.*.norm",
        "v.deepstack.*.linear_fc1": "v.deepstack.*.fc1",
        "v.deepstack.*.linear_fc2": "v.deepstack.*.fc2",
    }
    | _blocks("v.blocks", _FUSED | {"mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down"})
)
_INTERN_ENDS = {"mm.layer_norm": "mm.model.mlp.0", "mm.linear_1": "mm.model.mlp.1", "mm.linear_2": "mm.model.mlp.3"}
INTERN = (
    _INTERN_ENDS
    | {
        "v.embeddings.cls_token": "v.class_embd",
        "v.embeddings.patch_embeddings.projection": "v.patch_embd",
        "v.embeddings.position_embeddings": "v.position_embd.weight",
    }
    | _blocks(
        "v.encoder.layer",
        _ATTENTION
        | _MLP
        | {
            "attention.projection_layer": "attn_out",
            "attention.q_norm": "attn_q_norm",
            "attention.k_norm": "attn_k_norm",
            "layernorm_before": "ln1",
            "layernorm_after": "ln2",
            "lambda_1": "ls1.weight",
            "lambda_2": "ls2.weight",
        },
    )
)
# As the authors publish it, with code of its own.
INTERN_CHAT = {
    "mm.*": "mm.model.mlp.*",
    "v.embeddings.class_embedding": "v.class_embd",
    "v.embeddings.patch_embedding": "v.patch_embd",
    "v.embeddings.position_embedding": "v.position_embd.weight",
} | _blocks(
    "v.encoder.layers",
    _FUSED
    | _MLP
    | {"attn.q_norm": "attn_q_norm", "attn.k_norm": "attn_k_norm", "ls1": "ls1.weight", "ls2": "ls2.weight"},
)
LFM2 = VIT | {"mm.layer_norm": "mm.input_norm", "mm.linear_1": "mm.1", "mm.linear_2": "mm.2"}
JANUS = (
    VIT
    | {"mm.fc1": "mm.0", "mm.second": "mm.1"}
    | _blocks("v.encoder.layers", {"self_attn.projection_layer": "attn_out"})
)
GLM = (
    _FILM
    | {
        "v.patch_embed.proj": "v.patch_embd",
        "v.embeddings.position_embedding": "v.position_embd",
        "v.post_conv_layernorm": "v.norm_embd",
        "v.post_layernorm": "v.post_ln",
        "v.downsample": "mm.patch_merger",
        "v.merger.proj": "mm.model.fc",
        "v.merger.post_projection_norm": "mm.post_norm",
        "v.merger.gate_proj": "mm.gate",
        "v.merger.up_proj": "mm.up",
        "v.merger.down_proj": "mm.down",
    }
    | _blocks("v.blocks", _FUSED | _GATED)
)
LLAMA4 = {
    "v.patch_embedding.linear": "v.patch_embd",
    "v.class_embedding": "v.class_embd",
    "v.positional_embedding_vlm": "v.position_embd.weight",
    "v.layernorm_pre": "v.pre_ln",
    "v.layernorm_post": "v.post_ln",
    "v.vision_adapter.mlp.fc1": "mm.model.mlp.1",
    "v.vision_adapter.mlp.fc2": "mm.model.mlp.2",
    "mm.linear_1": "mm.model.fc",
} | _blocks(
    "v.model.layers",
    _SELF | _MLP | {"self_attn.o_proj": "attn_out", "input_layernorm": "ln1", "post_attention_layernorm": "ln2"},
)
OMNI = QWEN | _blocks("v.blocks", {f"attn.{name}": f"attn_{name}" for name in "qkv"})
WHISPER = {
    "a.conv1": "a.conv1d.1",
    "a.conv2": "a.conv1d.2",
    "a.embed_positions": "a.position_embd",
    "a.layer_norm": "a.post_ln",
} | _blocks(
    "a.layers",
    _SELF | {"self_attn_layer_norm": "ln1", "final_layer_norm": "ln2", "fc1": "ffn_up", "fc2": "ffn_down"},
)
