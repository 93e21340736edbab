"""config.json: hyperparameters under the names of different families and versions of transformers."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamina.errors import ModelFileError, ModelNotFound
from llamina.tokenizer.huggingface.json_file import read_json

_LIMIT = 1 << 31
_TIED = "tie_word_embeddings"


class Settings:
    """A model's hyperparameters. `names` are alternatives, separated by spaces: the first present counts."""

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        outer, inner = _present(values), _present(_inner(values))
        if "architectures" in outer:  # the class of a model that sees, not of its text model alone
            inner.pop("architectures", None)
        self._values = {**(defaults or {}), **outer, **inner}
        if outer.get(_TIED) is False:  # what text_config says may be no more than its default
            self._values[_TIED] = False

    @classmethod
    def read(cls, folder: Path) -> "Settings":
        """Return the settings in a folder's config.json. Raises ModelNotFound or ModelFileError."""
        return cls(read_config(folder))

    def __bool__(self) -> bool:
        return bool(self._values)

    def assuming(self, defaults: Mapping[str, Any]) -> "Settings":
        """Return these settings with defaults for what the file leaves out."""
        return Settings(self._values, defaults)

    def get(self, names: str, default: Any = None) -> Any:
        """Return a value as the file has it, or the default."""
        return next((self._values[name] for name in names.split() if name in self._values), default)

    def count(self, names: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number of at least `least`. Raises ModelFileError for anything else."""
        value = self.get(names, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _LIMIT:
            raise ModelFileError(
                f"config.json: {names.split()[0]} is {value!r}: must be a whole number of at least {least}"
            )
        return value

    def counts(self, names: str) -> list[int]:
        """Return a list of whole numbers; none if the file has no list. Raises ModelFileError for anything else."""
        value = self.get(names, [])
        if not isinstance(value, list) or any(type(item) is not int or not 0 <= item < _LIMIT for item in value):
            raise ModelFileError(f"config.json: {names.split()[0]} is {value!r}: must be a list of whole numbers")
        return value

    def number(self, names: str, default: float | None = None) -> float:
        """Return a number. Raises ModelFileError for anything else."""
        value = self.get(names, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise ModelFileError(f"config.json: {names.split()[0]} is {value!r}: must be a number")
        return float(value)

    def given(self, names: str) -> float | None:
        """Return a number, or None if the file has none."""
        return None if self.get(names) is None else self.number(names)

    @property
    def classes(self) -> list[str]:
        """The model's classes in transformers."""
        names = self.get("architectures", [])
        return [str(name) for name in names] if isinstance(names, list) else []

    @property
    def text_kind(self) -> str | None:
        """What a model that sees says of its text model: its `model_type`; None if it says nothing."""
        kind = _inner(self._values).get("model_type")
        return kind if isinstance(kind, str) else None

    @property
    def layers(self) -> int:
        return self.count("num_hidden_layers n_layer n_layers num_layers")

    @property
    def width(self) -> int:
        return self.count("hidden_size n_embd n_embed d_model")

    @property
    def heads(self) -> int:
        return self.count("num_attention_heads n_head n_heads")

    @property
    def kv_heads(self) -> int:
        return self.count("num_key_value_heads num_kv_heads n_head_kv", self.heads)

    @property
    def head_dim(self) -> int:
        return self.count("head_dim") if self.get("head_dim") is not None else self.width // self.heads

    @property
    def global_head_dim(self) -> int:
        """The size of heads in layers without a window, where it is another one (Gemma 4)."""
        for own in mapping(self.get("per_layer_config")).values():
            if "head_dim" in mapping(own):
                return Settings(own).count("head_dim")
        return self.count("global_head_dim", self.head_dim)

    @property
    def context(self) -> int:
        return self.count("max_position_embeddings n_positions n_ctx seq_length", 2048)

    @property
    def rope(self) -> "Settings":
        """The RoPE settings, under their new name or their old one."""
        values = self.get("rope_parameters rope_scaling")
        return Settings(values if isinstance(values, dict) else {})

    @property
    def windowed(self) -> list[bool] | None:
        """Which layers have a sliding window; None if the file does not list it."""
        kinds = self.get("layer_types")
        return [kind == "sliding_attention" for kind in kinds] if isinstance(kinds, list) else None


def read_config(folder: Path) -> dict[str, Any]:
    """Return a folder's config.json; of a model that also speaks (Qwen2.5-Omni), what is there of the part that thinks.

    Raises ModelNotFound or ModelFileError.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelNotFound(f"{folder} has no config.json: it is not a model folder of Hugging Face")
    config = read_json(path)
    thinker = mapping(config.get("thinker_config"))
    return {**thinker, "architectures": config.get("architectures")} if thinker else config


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object of JSON, or an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


def _inner(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a model that sees says of its text model: InternVL's own code names it otherwise."""
    return mapping(values.get("text_config")) or mapping(values.get("llm_config"))


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not null, which means the default."""
    return {key: value for key, value in values.items() if value is not None}
