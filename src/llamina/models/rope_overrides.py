"""RoPE settings that take the place of a file's, under the names and with the meaning of llama.cpp's options."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from llamina.errors import RequestError, check_whole

RopeScaling = Literal["none", "linear", "yarn"]
SCALINGS: tuple[RopeScaling, ...] = ("none", "linear", "yarn")


@dataclass(frozen=True, slots=True)
class RopeOverrides:
    """None: as the file has it. Layers with a base of their own (sliding windows) keep their base and scale.

    Raises RequestError for values that make no sense.
    """

    rope_scaling: RopeScaling | None = None
    rope_freq_base: float | None = None
    rope_freq_scale: float | None = None  # 1 / the factor by which the context grows
    yarn_ext_factor: float | None = None  # how much of the fast pairs is left as trained; 0: all are interpolated
    yarn_attn_factor: float | None = None  # by which rotated elements are multiplied where yarn_ext_factor is 0
    yarn_beta_fast: float | None = None
    yarn_beta_slow: float | None = None
    yarn_orig_ctx: int | None = None  # tokens of the context before it was made longer

    def __post_init__(self) -> None:
        if self.rope_scaling not in (None, *SCALINGS):
            message = f"rope_scaling is {self.rope_scaling!r}: it must be {', '.join(SCALINGS[:-1])} or {SCALINGS[-1]}"
            raise RequestError(message, "rope_scaling")
        for name in ("rope_freq_base", "rope_freq_scale", "yarn_beta_fast", "yarn_beta_slow"):
            self._check(name, above=True)
        for name in ("yarn_ext_factor", "yarn_attn_factor"):
            self._check(name, above=False)
        check_whole("yarn_orig_ctx", self.yarn_orig_ctx, 1, optional=True)
        if self.rope_scaling == "none" and self.rope_freq_scale not in (None, 1):
            message = f"rope_freq_scale is {self.rope_freq_scale} and rope_scaling is 'none': give one of them"
            raise RequestError(message, "rope_freq_scale")

    def _check(self, name: str, above: bool) -> None:
        value = getattr(self, name)
        if value is None:
            return
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0 or (above and value == 0):
            raise RequestError(
                f"{name} is {value!r}: it must be a number {'above' if above else 'of at least'} 0", name
            )

    def given(self) -> dict[str, Any]:
        """What is overridden, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @classmethod
    def take(cls, options: Mapping[str, Any]) -> "RopeOverrides":
        """Those among a model's options."""
        return cls(**{f.name: options[f.name] for f in fields(cls) if f.name in options})


NAMES = frozenset(f.name for f in fields(RopeOverrides))
