"""Encoders by the class of their model in transformers."""

from llamina.convert.encoders import pictures
from llamina.convert.encoders.source import Encoder, Source
from llamina.errors import UnsupportedModel

ENCODERS: dict[str, Encoder] = pictures.ENCODERS


def encoder_of(source: Source) -> Encoder:
    """The kind of a folder's encoder. Raises UnsupportedModel for one that is not known here."""
    found = next((ENCODERS[name] for name in source.text.classes if name in ENCODERS), None)
    if found is None:
        given, known = ", ".join(source.text.classes), ", ".join(ENCODERS)
        raise UnsupportedModel(f"config.json names {given}, whose pictures are not known here: {known} are")
    return pictures.tower(source) if found is pictures.LLAVA else found
