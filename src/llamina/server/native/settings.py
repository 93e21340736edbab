"""`generation_settings`: what a request was computed with, under llama.cpp's names."""

from typing import Any

from llamina.engine.request import SAMPLING
from llamina.sampling import Sampling
from llamina.sampling.params import ORDER

RANDOM = 4294967295  # llama.cpp's way to say that a seed was drawn
THEIR_NAMES = {"typical_p": "typ_p"}
OURS = ("top_a", "epsilon_cutoff", "eta_cutoff")  # stages that llama.cpp does not have: told only if they act
SAME = (
    "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "xtc_probability",
    "xtc_threshold", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "mirostat",
    "mirostat_tau", "mirostat_eta",
)  # fmt: skip


def sampling_of(defaults: dict[str, Any], options: dict[str, Any]) -> Sampling:
    """The sampling of a request, given a model's defaults and the engine's options."""
    return Sampling(**{**defaults, **{name: value for name, value in options.items() if name in SAMPLING}})


def settings(sampling: Sampling, options: dict[str, Any], stream: bool) -> dict[str, Any]:
    """All parameters; `options` are the engine's."""
    most = options.get("max_tokens")
    stop = options.get("stop") or []
    return {
        "seed": RANDOM if sampling.seed is None else sampling.seed,
        **{name: getattr(sampling, name) for name in SAME},
        "top_n_sigma": sampling.top_n_sigma or -1.0,  # off, as llama.cpp says it
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "stop": [stop] if isinstance(stop, str) else list(stop),
        "max_tokens": -1 if most is None else most,
        "n_predict": -1 if most is None else most,
        "n_keep": options.get("n_keep", 0),
        "n_discard": 0,
        "ignore_eos": options.get("ignore_eos", False),
        "stream": stream,
        "logit_bias": [{"token": token, "bias": bias} for token, bias in sampling.logit_bias.items()],
        "n_probs": options.get("logprobs") or 0,
        "min_keep": 0,
        "grammar": options.get("grammar") or "",
        "samplers": [THEIR_NAMES.get(name, name) for name in sampling.samplers if _acts(sampling, name)],
        "timings_per_token": False,
        "post_sampling_probs": False,
        "lora": [{"name": name, "scale": scale} for name, scale in (options.get("adapters") or {}).items()],
    }


def shorter(said: dict[str, Any]) -> dict[str, Any]:
    """Without what may be long, as `/props` and `/slots` have it."""
    long = ("dry_sequence_breakers", "stop", "logit_bias", "grammar")
    return {name: value for name, value in said.items() if name not in long}


def _acts(sampling: Sampling, stage: str) -> bool:
    return stage not in OURS or bool(getattr(sampling, stage)) or tuple(sampling.samplers) != ORDER
