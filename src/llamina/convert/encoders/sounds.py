"""Encoders of sounds: Whisper's, and metadata per projector."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from llamina.convert import edits
from llamina.convert.encoders import names
from llamina.convert.encoders.source import Encoder, Source
from llamina.convert.families import Family
from llamina.convert.keys import Keys
from llamina.convert.lazy import Lazy
from llamina.errors import UnsupportedModel

# transformers' defaults for what config.json leaves out, and what it has no setting for.
_DEFAULTS = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "activation_function": "gelu",
    "layer_norm_eps": 1e-5,
}


def _whisper(projector: str, table: dict[str, str], keys: Callable[[Source], Keys]) -> Encoder:
    columns = {"a.conv1d.1.bias": edits.column, "a.conv1d.2.bias": edits.column}
    return Encoder("audio", projector, Family("clip", names.WHISPER | table, columns, defaults=_DEFAULTS), keys)


def _qwen2_audio(source: Source) -> Keys:
    source.expect(scale_embedding=False, activation_function="gelu")
    return {}


def _waves(source: Source, stored: Mapping[str, Lazy]) -> Iterator[tuple[str, Lazy]]:
    """Positions that are computed: sines of each wavelength, then cosines."""
    half = source.own.count("d_model") // 2
    lengths = np.exp(-np.log(10000) / (half - 1) * np.arange(half))
    angles = np.arange(source.own.count("max_source_positions", 1500))[:, None] * lengths
    yield "a.position_embd.weight", Lazy.here(np.concatenate([np.sin(angles), np.cos(angles)], 1))


def _voxtral(source: Source) -> Keys:
    """How many frames become one row. Raises UnsupportedModel if that is no whole number."""
    source.expect(scale_embedding=False, activation_function="gelu", projector_hidden_act="gelu")
    width, stacked = (source.own.count(name) for name in ("hidden_size d_model", "intermediate_size encoder_ffn_dim"))
    if stacked % width:
        raise UnsupportedModel(f"config.json: rows of {stacked} are no whole number of frames of {width}")
    return {"projector.stack_factor": stacked // width}


ENCODERS = {
    "Qwen2AudioForConditionalGeneration": _whisper("qwen2a", {"mm.linear": "mm.a.fc"}, _qwen2_audio),
    "VoxtralForConditionalGeneration": _whisper(
        "voxtral", {"mm.linear_1": "mm.a.mlp.1", "mm.linear_2": "mm.a.mlp.2"}, _voxtral
    ),
}
OMNI = replace(
    _whisper("qwen2.5o", {"a.ln_post": "a.post_ln", "a.proj": "mm.a.fc"}, _qwen2_audio),
    ignored=re.compile(r"a\.audio_bos_eos_token\."),
    more=_waves,
    note="sounds are encoded by 30 seconds, as in llama.cpp: GGUF has no key for the windows that transformers has",
)
