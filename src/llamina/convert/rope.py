"""RoPE settings: config.json's old and new spellings as GGUF's keys and frequency factors."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llamina.convert.settings import Settings, mapping
from llamina.errors import ModelFileError, UnsupportedModel


@dataclass(frozen=True, slots=True)
class Rope:
    """The rotary position embeddings of a model."""

    dims: int
    base: float
    local_base: float | None  # of layers with a sliding window, where it differs
    kind: str
    scaling: Settings
    original_context: int | None

    @classmethod
    def read(cls, settings: Settings) -> "Rope":
        """Return the RoPE settings of a model. Raises ModelFileError if they make no sense."""
        rope = settings.rope
        inner = Settings(mapping(rope.get("full_attention"))) if rope.get("full_attention") else rope
        local = Settings(mapping(rope.get("sliding_attention")))
        part = inner.number("partial_rotary_factor", settings.number("partial_rotary_factor rotary_pct rope_pct", 1.0))
        base = inner.number("rope_theta", settings.number("rope_theta rotary_emb_base global_rope_theta", 10000.0))
        local_base = local.given("rope_theta")
        if base <= 0 or not 0 < part <= 1:
            raise ModelFileError(f"config.json: RoPE has the base {base} and covers {part} of a head")
        kind = str(inner.get("rope_type type", "default")).lower()
        original = "original_max_position_embeddings"
        stated = inner.get(original) is not None or settings.get(original) is not None
        return cls(
            dims=settings.global_head_dim if kind == "proportional" else int(part * settings.head_dim),
            base=base,
            local_base=settings.given("rope_local_base_freq local_rope_theta") if local_base is None else local_base,
            kind=kind,
            scaling=inner,
            original_context=inner.count(original, settings.get(original)) if stated else None,
        )

    def metadata(self, context: int) -> dict[str, object]:
        """Return GGUF's keys, without the architecture's name. Raises UnsupportedModel for an unknown kind."""
        keys: dict[str, object] = {"rope.dimension_count": self.dims, "rope.freq_base": self.base}
        if self.local_base is not None:
            keys["rope.freq_base_swa"] = self.local_base
        match self.kind:
            case (
                "default" | "mrope" | "llama3" | "proportional" | "dynamic"
            ):  # two are tensors; `left_out` tells of one
                return keys
            case "linear":
                return keys | {"rope.scaling.type": "linear", "rope.scaling.factor": self._number("factor")}
            case "yarn":
                return keys | self._yarn(context)
            case "longrope" | "su":
                return keys | self._longrope(context)
        raise UnsupportedModel(f"config.json: rope_type {self.kind!r} has no counterpart in GGUF")

    def left_out(self, context: int) -> str | None:
        """What GGUF has no key for; None if that is nothing."""
        if self.kind != "dynamic":
            return None
        return (
            f"rope_type 'dynamic' (factor {self.scaling.get('factor')}) is left out: GGUF has no scaling that grows "
            f"with the text; up to the {context} tokens of the trained context nothing changes"
        )

    def factors(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the divisors of the frequencies, as tensors by name."""
        if self.kind == "llama3":
            return {"rope_freqs.weight": self._llama3()}
        if self.kind == "proportional":
            return {"rope_freqs.weight": self._proportional()}
        if self.kind in ("longrope", "su"):
            return {f"rope_factors_{reach}.weight": self._listed(f"{reach}_factor") for reach in ("long", "short")}
        return {}

    def _number(self, name: str, default: float | None = None) -> float:
        value = self.scaling.number(name, default)
        if value <= 0:
            raise ModelFileError(f"config.json: {name} of RoPE is {value}: must be above 0")
        return value

    def _yarn(self, context: int) -> dict[str, object]:
        factor = self._number("factor")
        keys: dict[str, object] = {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": factor,
            "rope.scaling.original_context_length": self.original_context or context,
        }
        for name in ("beta_fast", "beta_slow"):
            if self.scaling.get(name) is not None:
                keys[f"rope.scaling.yarn_{name}"] = self._number(name)
        if self.scaling.get("attention_factor") is not None:  # GGUF's is relative to YaRN's own
            keys["rope.scaling.attn_factor"] = self._number("attention_factor") / (1 + 0.1 * math.log(factor))
        return keys

    def _longrope(self, context: int) -> dict[str, object]:
        original = self.original_context or context
        stretch = context / original
        magnitude = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
        return {
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": original,
            "rope.scaling.attn_factor": self._number("attention_factor", magnitude),
        }

    def _listed(self, name: str) -> npt.NDArray[np.float32]:
        listed = self.scaling.get(name)
        is_valid = isinstance(listed, list) and all(isinstance(value, int | float) for value in listed)
        values = np.array(listed if is_valid else [], np.float32)
        if values.shape != (self.dims // 2,):
            raise ModelFileError(f"config.json: {name} has shape {values.shape}: must have {self.dims // 2} values")
        return values

    def _proportional(self) -> npt.NDArray[np.float32]:
        """Return divisors that leave all but the first pairs of a head as they are."""
        rotated = int(self._number("partial_rotary_factor", 1.0) * self.dims / 2)
        factors = np.full(self.dims // 2, 1e30, np.float32)
        factors[:rotated] = self._number("factor", 1.0)
        return factors

    def _llama3(self) -> npt.NDArray[np.float32]:
        """Return Llama 3's divisors: 1 for high frequencies, the factor for low ones, interpolated between."""
        factor, low, high = (
            self._number(n, d) for n, d in (("factor", 8), ("low_freq_factor", 1), ("high_freq_factor", 4))
        )
        turns = (self.original_context or 8192) * self.base ** -(np.arange(0, self.dims, 2) / self.dims) / (2 * math.pi)
        blend = np.clip((turns - low) / (high - low), 0, 1)
        return (1 / ((1 - blend) / factor + blend)).astype(np.float32)
