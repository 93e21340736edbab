"""Hyperparameters as GGUF metadata: keys of all families, then those that a family adds or removes."""

from pathlib import Path

from llamina.convert.families import Family
from llamina.convert.rope import Rope
from llamina.convert.sentence import dense_layers, dense_sizes, pooling
from llamina.convert.settings import Settings
from llamina.errors import ModelFileError

# GGUF's keys, and the names in config.json.
_COUNTS = {
    "feed_forward_length": "intermediate_size n_inner ffn_dim",
    "expert_count": "num_local_experts num_experts n_routed_experts",
    "expert_used_count": "num_experts_per_tok num_experts_per_token",
    "vocab_size": "vocab_size",
}
_EPSILONS = {
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps layer_norm_epsilon norm_epsilon",
}


def model_metadata(folder: Path, family: Family, settings: Settings, notes: list[str]) -> dict[str, object]:
    """Return the keys that begin with the architecture's name. What is left out goes to `notes`."""
    keys: dict[str, object] = {
        "block_count": settings.layers,
        "context_length": settings.context,
        "embedding_length": settings.width,
        "attention.head_count": settings.heads if settings.get("num_attention_heads n_head n_heads") else None,
    }
    if keys["attention.head_count"] is not None:
        keys["attention.head_count_kv"] = settings.kv_heads
    if settings.get("head_dim") is not None:
        keys |= {"attention.key_length": settings.head_dim, "attention.value_length": settings.head_dim}
    counts = {key: names for key, names in _COUNTS.items() if not isinstance(settings.get(names), list | None)}
    keys |= {key: settings.count(names) for key, names in counts.items()}  # a list is the family's to read
    keys |= {key: settings.number(names) for key, names in _EPSILONS.items() if settings.get(names) is not None}
    if family.rope:
        rope = Rope.read(settings)
        keys |= rope.metadata(settings.context)
        if left_out := rope.left_out(settings.context):
            notes.append(left_out)
    keys |= _windows(family, settings, notes)
    if family.encoder:
        keys |= pooling(folder)
        keys |= dense_sizes(dense_layers(folder)) if family.dense else {}
    if family.pads:
        keys["context_length"] = settings.context - settings.count("pad_token_id", 1, least=0) - 1
    keys |= family.keys(settings)
    return {f"{family.architecture}.{key}": value for key, value in keys.items() if value is not None}


def _windows(family: Family, settings: Settings, notes: list[str]) -> dict[str, object]:
    """Return the size of the sliding window, and the layers that have it."""
    window = settings.count("sliding_window", 0, least=0)
    if not window or settings.get("use_sliding_window", True) is False:
        return {}
    if not family.windows:
        if window < settings.context:
            notes.append(f"sliding_window {window} is left out: {family.architecture} in GGUF sees the whole context")
        return {}
    keys: dict[str, object] = {"attention.sliding_window": window}
    windowed = settings.windowed
    if windowed is None and (period := settings.get("sliding_window_pattern _sliding_window_pattern")) is not None:
        windowed = [_is_windowed(layer, period) for layer in range(settings.layers)]
    if windowed is not None:
        if len(windowed) != settings.layers:
            raise ModelFileError(f"config.json: layer_types has {len(windowed)} entries for {settings.layers} layers")
        keys["attention.sliding_window_pattern"] = windowed
    return keys


def _is_windowed(layer: int, period: int | str) -> bool:
    """Whether a layer is local: all but the last of each period, or by a string with L for local."""
    return bool((layer + 1) % period) if isinstance(period, int) else period[layer % len(period)] == "L"
