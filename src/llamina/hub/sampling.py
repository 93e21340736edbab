"""The sampling defaults of a model: those in its file (`general.sampling.*`), else the catalogue's."""

import math
from typing import TYPE_CHECKING, Any

from llamina.errors import ModelFileError
from llamina.hub.catalogue import entry_of_file

if TYPE_CHECKING:
    from llamina.gguf import GGUF

# `general.sampling.…` → the field of `Sampling`
_NUMBERS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
_WHOLE = {"top_k", "repeat_last_n", "mirostat"}
# Other names that llama.cpp has for the samplers in `general.sampling.sequence`
_SAMPLERS = {"temp": "temperature", "nucleus": "top_p"} | dict.fromkeys(("typ", "typ_p", "typical"), "typical_p")


def sampling_for(file: "GGUF") -> dict[str, Any]:
    """The sampling defaults of a model as fields of `Sampling`; those that nobody gives are left out.

    The file's own win over the catalogue's, one by one. Raises `ModelFileError` if the file has a value of the wrong
    type; whether it is in range is for `Sampling` to say.
    """
    entry = entry_of_file(file.source)
    defaults = dict(entry.sampling) if entry else {}
    for key, name in _NUMBERS.items():
        if (value := file.metadata.get(f"general.sampling.{key}")) is not None:
            defaults[name] = _number(key, value, name in _WHOLE)
    if (sequence := file.metadata.get("general.sampling.sequence")) is not None:
        defaults["samplers"] = _samplers(sequence)
    if defaults.get("top_k", 0) < 0:  # llama.cpp's way to say that all tokens stay
        defaults["top_k"] = 0
    return defaults


def _number(key: str, value: object, whole: bool) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        if not whole:
            return float(f"{value:.7g}")  # the file has float32, where 0.8 is 0.800000012
        if value == int(value):
            return int(value)
    expected = "a whole number" if whole else "a number"
    raise ModelFileError(f"general.sampling.{key} is {value!r}, not {expected}: correct the file's metadata")


def _samplers(sequence: object) -> tuple[str, ...]:
    if not isinstance(sequence, str):
        expected = "names with semicolons between them: correct the file's metadata"
        raise ModelFileError(f"general.sampling.sequence is {sequence!r}, not {expected}")
    names = [name.strip().replace("-", "_") for name in sequence.split(";") if name.strip()]
    return tuple(_SAMPLERS.get(name, name) for name in names)
