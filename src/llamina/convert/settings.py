"""config.json: hyper-parameters under the names that model families and versions of transformers give them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llamina.convert.safetensors import read_json
from llamina.errors import ModelFileError, ModelNotFound

_LIMIT = 1 << 31


class Settings:
    """A model's hyper-parameters. Several names in one string mean the first that the file has."""

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        text = values.get("text_config")
        self._values = {**(defaults or {}), **_present(values), **_present(text if isinstance(text, dict) else {})}

    @classmethod
    def read(cls, folder: Path) -> "Settings":
        path = folder / "config.json"
        if not path.is_file():
            raise ModelNotFound(f"{folder} has no config.json: it is not a model's folder as Hugging Face has them")
        return cls(read_json(path))

    def assuming(self, defaults: Mapping[str, Any]) -> "Settings":
        """The same, with values for what the file leaves out."""
        return Settings(self._values, defaults)

    def get(self, names: str, default: Any = None) -> Any:
        return next((self._values[name] for name in names.split() if name in self._values), default)

    def count(self, names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number within reason."""
        value = self.get(names, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _LIMIT:
            raise ModelFileError(
                f"config.json: {names.split()[0]} is {value!r}: a whole number from {least} is expected"
            )
        return value

    def number(self, names: str, default: float | None = None) -> float:
        value = self.get(names, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelFileError(f"config.json: {names.split()[0]} is {value!r}: a number is expected")
        return float(value)

    def given(self, names: str) -> float | None:
        """A number, if there is one."""
        return None if self.get(names) is None else self.number(names)

    @property
    def classes(self) -> list[str]:
        """The names of the model in transformers."""
        found = self.get("architectures", [])
        return [str(name) for name in found] if isinstance(found, list) else []

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
    def context(self) -> int:
        return self.count("max_position_embeddings n_positions n_ctx seq_length", 2048)

    @property
    def rotation(self) -> "Settings":
        """What is said of the rotation, under its new name or its old one."""
        found = self.get("rope_parameters rope_scaling")
        return Settings(found if isinstance(found, dict) else {})

    @property
    def windowed(self) -> list[bool] | None:
        """Which layers see a sliding window only, if the file lists it."""
        kinds = self.get("layer_types")
        return [kind == "sliding_attention" for kind in kinds] if isinstance(kinds, list) else None


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is said; null means the default."""
    return {key: value for key, value in values.items() if value is not None}
