"""What a folder says of its encoder, and what a kind of encoder is."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llamina.convert.families import Family, assumed
from llamina.convert.keys import Keys
from llamina.convert.lazy import Lazy
from llamina.convert.safetensors import read_json
from llamina.convert.settings import Settings, mapping, read_config
from llamina.errors import ModelFileError, UnsupportedModel

_FILES = ("preprocessor_config.json", "processor_config.json")
_SIDES = ("image_size", "patch_size")


@dataclass(frozen=True, slots=True)
class Source:
    """What a folder says of its encoders: `own` are the settings of one (see `of`), `text` those of the text model."""

    folder: Path
    config: Mapping[str, Any]
    own: Settings
    text: Settings
    processor: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Source":
        """Raises ModelNotFound or ModelFileError."""
        config = read_config(folder)
        text = Settings(config)
        processor: dict[str, Any] = {}
        for name in _FILES:
            if (folder / name).is_file():
                found = read_json(folder / name)
                processor |= {**found, **mapping(found.get("image_processor"))}
        return cls(folder, config, Settings({}), text.assuming(assumed(text)), processor)

    def of(self, encoder: "Encoder") -> "Source":
        """The same, with an encoder's own settings. Raises UnsupportedModel for pictures that are no squares."""
        own = dict(self.said(encoder.kind))
        own |= {key: _side(key, own[key]) for key in _SIDES if isinstance(own.get(key), list)}
        return replace(self, own=Settings(own, encoder.family.defaults))

    def said(self, kind: str) -> Mapping[str, Any]:
        """What config.json says of an encoder of a kind of media."""
        return mapping(self.config.get(f"{kind}_config"))

    def colours(self, name: str) -> list[float]:
        """Three numbers of the processor's settings. Raises ModelFileError if there are none."""
        value = self.processor.get(name)
        if not isinstance(value, list) or len(value) != 3:
            raise ModelFileError(f"{name} is {value!r} in preprocessor_config.json: it must be three numbers")
        return [float(x) for x in value]

    def expect(self, **implied: Any) -> None:
        """Raise UnsupportedModel for a setting of the encoder or beside it that is not what GGUF implies."""
        for name, value in implied.items():
            given = self.own.get(name, self.config.get(name))
            if given is not None and given != value:
                raise UnsupportedModel(f"config.json: {name} is {given!r}, but this encoder in GGUF implies {value!r}")


def _side(key: str, value: list[Any]) -> Any:
    """A side of squares that are listed by height and width. Raises UnsupportedModel for other rectangles."""
    if len(value) != 2 or value[0] != value[1]:
        raise UnsupportedModel(f"config.json: {key} is {value}: squares are known")
    return value[0]


def nothing_more(source: Source, stored: Mapping[str, Lazy]) -> Iterator[tuple[str, Lazy]]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Encoder:
    """A family of encoders: its projector in GGUF, its tensors, and metadata beside what all of its media have.

    Names of `family` are those that `short` returns: they begin with `v.`, `a.` or `mm.`.
    """

    kind: str  # of media, as GGUF names it: `vision`, `audio`
    projector: str
    family: Family
    keys: Callable[[Source], Keys]
    ignored: re.Pattern[str] | None = None
    short: Callable[[Source, str], str] = lambda source, name: name
    more: Callable[[Source, Mapping[str, Lazy]], Iterator[tuple[str, Lazy]]] = nothing_more  # computed tensors
    note: str = ""  # for the user
