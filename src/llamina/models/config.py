"""Hyper-parameters by their GGUF names, checked once. Architecture-specific ones are read where they are used."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from llamina.errors import ModelFileError, RequestError
from llamina.models.rope_overrides import RopeOverrides
from llamina.ops import Rope, Routing, Scoring

Sections = Literal["none", "blocks", "interleaved"]  # how M-RoPE hands pairs to its positions
SCORINGS: tuple[Scoring, ...] = ("softmax", "sigmoid", "softmax_selected")  # by GGUF's numbers, from 1
UNPREFIXED = "xielu."  # keys that begin so have no architecture before them
_LIMIT = 1 << 24  # no count in a real model comes near this
REPEATED = 64  # nor how often a part of it is repeated near this


class Config:
    """The metadata of one model, `general.architecture` being implied in every key."""

    def __init__(
        self, metadata: Mapping[str, Any], context: int | None = None, overrides: RopeOverrides | None = None
    ) -> None:
        self._metadata = metadata
        self.overrides = overrides or RopeOverrides()
        self._overridden = False
        self.architecture = str(metadata.get("general.architecture", ""))
        drafting = self.count("nextn_predict_layers", 0, least=0)  # the last ones, not part of the model proper
        self.layers = self.count("block_count", least=drafting + 1) - drafting
        self.width = self.count("embedding_length")
        self.trained_context = self.count("context_length", 2048)
        self.context = context or self.trained_context
        self.heads = self.count("attention.head_count", 1, least=0) or 1  # models without attention say 0
        self.kv_heads = self.count("attention.head_count_kv", self.heads)
        default_dim = self.width // self.heads
        self.head_dim = self.count("attention.key_length", default_dim)
        self.value_dim = self.count("attention.value_length", default_dim)
        self.eps = self.positive(
            "attention.layer_norm_rms_epsilon", self.positive("attention.layer_norm_epsilon", 1e-5)
        )
        self.experts = self.count("expert_count", 0, least=0)
        self.experts_used = self.count("expert_used_count", 0, least=0)

    def named(self, key: str) -> str:
        """A key as it is in the file."""
        return key if key.startswith(UNPREFIXED) else f"{self.architecture}.{key}"

    def get(self, key: str, default: Any = None) -> Any:
        """A value of this architecture, as the file has it."""
        return self._metadata.get(self.named(key), default)

    def count(
        self, key: str, default: int | None = None, least: int = 1, layer: int | None = None, most: int = _LIMIT
    ) -> int:
        """A whole number within reason; of an array, the entry of `layer`, or its largest."""
        value = self.get(key, default)
        if value is None:
            raise ModelFileError(f"{self.named(key)} is missing: the file cannot be run without it")
        value = _entry(value, layer)
        if not _is_number(value) or not least <= value <= most or int(value) != value:
            raise ModelFileError(f"{self.named(key)} is {value!r}: it must be a whole number from {least} to {most}")
        return int(value)

    def number(self, key: str, default: float | None = None, layer: int | None = None) -> float:
        """A finite number; of an array, the entry of `layer`."""
        value = _entry(self.get(key, default), layer)
        if value is None:
            raise ModelFileError(f"{self.named(key)} is missing: the file cannot be run without it")
        if not _is_number(value) or not math.isfinite(value):
            raise ModelFileError(f"{self.named(key)} is {value!r}: it must be a finite number")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.number(key, default)
        if value <= 0:
            raise ModelFileError(f"{self.named(key)} is {value!r}: it must be a number above 0")
        return value

    def flag(self, key: str, default: bool = False, layer: int | None = None) -> bool:
        """Yes or no; of an array, the entry of `layer`."""
        value = _entry(self.get(key, default), layer)
        if value is None:
            raise ModelFileError(f"{self.named(key)} has no entry for layer {layer} of {self.layers}")
        return bool(value)

    def listed(self, key: str) -> tuple[int, ...]:
        """Whole numbers of any size, as the file lists them; none if it does not."""
        value = self.get(key, ())
        numbers = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(numbers, list | tuple) or not all(type(n) is int for n in numbers):
            raise ModelFileError(f"{self.named(key)} is {numbers!r}: it must be a list of whole numbers")
        return tuple(numbers)

    def windowed(self, layer: int, period: int, global_first: bool = False) -> bool:
        """Whether a layer sees only the window: as the file lists it, else all but the last (first) of each period."""
        key = "attention.sliding_window_pattern"
        if hasattr(self.get(key, period), "__len__"):
            return self.flag(key, layer=layer)
        period = self.count(key, period, least=0)
        return period == 0 or (layer % period > 0 if global_first else layer % period < period - 1)

    def rope(self, neox: bool, base: float | None = None, scaled: bool = True, sections: Sections = "none") -> Rope:
        """The file's rotary settings, or what overrides them; `scaled=False` leaves out the scaling (local layers).

        With a `base` they are those of local layers, whose base and scale are not overridden.
        """
        own, trained = self.overrides, str(self.get("rope.scaling.type", "linear"))
        kind = own.rope_scaling or trained
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0)) or 1.0
        if trained not in ("none", "linear", "yarn", "longrope") or factor < 0:
            raise ModelFileError(f"rope scaling {kind!r} by {factor} is not known: none, linear, yarn or longrope is")
        if base is None:
            self._overridden = True
            factor = 1 / own.rope_freq_scale if own.rope_freq_scale else factor
        if (kind if base is None else trained) == "none" or not scaled:
            factor = 1.0
        yarn = _first(own.yarn_ext_factor, self.number("rope.scaling.yarn_ext_factor", -1.0))
        yarn = yarn if yarn >= 0 else float(kind == "yarn")
        if yarn and own.yarn_attn_factor is not None:
            message = f"yarn_attn_factor is {own.yarn_attn_factor}: YaRN computes it, unless yarn_ext_factor is 0"
            raise RequestError(message, "yarn_attn_factor")
        attention = _first(own.yarn_attn_factor, self.number("rope.scaling.yarn_attn_factor", 1.0))
        stretch = self.yarn_magnitude(factor) if yarn else attention
        dims = self.count("rope.dimension_count", self.head_dim, most=1 << 16)
        return Rope(
            dims,
            base or own.rope_freq_base or self.trained_base,
            neox,
            scale=1 / factor,
            ext_factor=yarn,
            magnitude=stretch * self.number("rope.scaling.attn_factor", 1.0),
            beta_fast=own.yarn_beta_fast or self.positive("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=own.yarn_beta_slow or self.positive("rope.scaling.yarn_beta_slow", 1.0),
            original_context=own.yarn_orig_ctx or self.original_context,
            **_followed(dims // 2, self.rope_sections, sections),
        )

    def check_overridden(self) -> None:
        """Raise RequestError if RoPE settings are to be overridden that the architecture does not have."""
        if (given := self.overrides.given()) and not self._overridden:
            name, value = next(iter(given.items()))
            message = f"{name} is {value} and {self.architecture} has no RoPE settings that could be overridden"
            raise RequestError(f"{message}: leave it out", name)

    @property
    def trained_base(self) -> float:
        """RoPE's base as the file has it."""
        return self.positive("rope.freq_base", 10000.0)

    @property
    def rope_sections(self) -> tuple[int, ...]:
        """How many pairs follow each of M-RoPE's four positions (time, height, width, and a fourth); () without it."""
        value = self.get("rope.dimension_sections", ())
        listed = value.tolist() if hasattr(value, "tolist") else value
        given = tuple(listed) if isinstance(listed, list | tuple) else (listed,) * 4
        if len(given) not in (0, 4) or not all(_is_number(n) and 0 <= n <= _LIMIT and n == int(n) for n in given):
            raise ModelFileError(f"{self.architecture}.rope.dimension_sections is {listed!r}: it must be 4 counts")
        return tuple(int(n) for n in given) if given and all(given[:2]) else ()

    def routing(self, scoring: Scoring = "softmax", normalize: bool | None = None) -> Routing:
        """How experts are chosen and weighed; the file may name another scoring, and whether weights are normed."""
        gating = self.count("expert_gating_func", 0, least=0)
        if gating > len(SCORINGS):
            raise ModelFileError(f"{self.architecture}.expert_gating_func is {gating}: 1 to {len(SCORINGS)} are known")
        return Routing(
            self.experts_used,
            SCORINGS[gating - 1] if gating else scoring,
            normalize=self.flag("expert_weights_norm") if normalize is None else normalize,
            scale=self.number("expert_weights_scale", 0.0) or 1.0,
            groups=self.count("expert_group_count", 0, least=0) or 1,
            groups_used=self.count("expert_group_used_count", 0, least=0) or 1,
        )

    def yarn_magnitude(self, factor: float) -> float:
        """YaRN's stretch of rotated elements, where `yarn_log_multiplier` has not moved it into the scores."""
        moved = self.yarn_log_multiplier
        if not moved:
            return yarn_stretch(factor, 1.0)
        own = moved if self.architecture == "deepseek2" and moved != 1.0 else 1.0
        return yarn_stretch(factor, own) / yarn_stretch(factor, moved)

    @property
    def yarn_log_multiplier(self) -> float:
        written = self.number("rope.scaling.yarn_log_multiplier", 0.0)
        return written if self.architecture == "mistral3" else written / 0.1  # all others write a tenth of it

    @property
    def original_context(self) -> int:
        return self.count("rope.scaling.original_context_length", self.trained_context)


def _followed(pairs: int, counts: tuple[int, ...], sections: Sections) -> dict[str, tuple[int, ...]]:
    """Which of M-RoPE's positions each pair follows. The fourth is always 0: its pairs are not rotated."""
    if sections == "none" or not counts:
        return {}
    time, height, width, _ = counts
    sectors = [pair % sum(counts) for pair in range(pairs)]
    if sections == "interleaved":
        axes = tuple(sector % 3 for sector in sectors)
        reach = (3 * time, 3 * height, 3 * width)
        unrotated = tuple(pair for pair, sector in enumerate(sectors) if sector >= reach[sector % 3])
    else:
        axes = tuple(int(sector >= time) + int(sector >= time + height) for sector in sectors)
        unrotated = tuple(pair for pair, sector in enumerate(sectors) if sector >= time + height + width)
    return {"axes": axes, "unrotated": unrotated}


def _first(override: float | None, own: float) -> float:
    return own if override is None else override


def yarn_stretch(factor: float, multiplier: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * multiplier * math.log(factor) + 1.0


def _entry(value: Any, layer: int | None) -> Any:
    """A layer's entry of an array, or its largest; anything else as it is."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return value
    if not len(value) or (layer is not None and layer >= len(value)):
        return None
    chosen = max(value) if layer is None else value[layer]
    return chosen.item() if hasattr(chosen, "item") else chosen


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
