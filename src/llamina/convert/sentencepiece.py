"""SentencePiece vocabularies: from tokenizer.model, a protocol buffer, or from a tokenizer.json made of one."""

import base64
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from llamina.convert.words import ADDED_SCORE, Kind, Words, merge_pairs
from llamina.errors import ModelFileError, UnsupportedModel

Field: TypeAlias = tuple[int, int | bytes]
# Numbers of the fields that are read, and the kinds of models.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE = 3
_ROLES = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}  # and what they are if nothing is said
_CHARACTERS, _DUMMY_PREFIX, _EXTRA_SPACES = 2, 3, 4
_UNIGRAM, _BYTE_PAIRS = 1, 2


def from_model(path: Path) -> Words:
    """The vocabulary in a file that SentencePiece trained."""
    try:
        fields = list(_fields(path.read_bytes()))
        pieces = [dict(_fields(value)) for number, value in fields if number == _PIECES and isinstance(value, bytes)]
        trainer, normalizer = (_message(fields, number) for number in (_TRAINER, _NORMALIZER))
        texts = [bytes(piece[_TEXT]).decode() for piece in pieces]
        scores = [struct.unpack("<f", bytes(piece.get(_SCORE, bytes(4))))[0] for piece in pieces]
        kinds = [Kind(int(piece.get(_KIND, Kind.NORMAL))) for piece in pieces]
    except (IndexError, KeyError, TypeError, ValueError, struct.error):
        raise ModelFileError(f"{path} is not a model of SentencePiece, or damaged: fetch it again") from None
    if not texts:
        raise ModelFileError(f"{path} holds no tokens: fetch it again")
    roles = {role: int(trainer.get(field, default)) for role, (field, default) in _ROLES.items()}
    roles = {role: token for role, token in roles.items() if 0 <= token < len(texts)}
    prefix = {"tokenizer.ggml.add_space_prefix": bool(normalizer.get(_DUMMY_PREFIX, True))}
    match trainer.get(_MODEL_TYPE, _UNIGRAM):
        case 2:
            return Words("llama", "default", texts, kinds, scores, extra=dict(prefix), roles=roles)
        case 1:
            extra = prefix | _characters(bytes(normalizer.get(_CHARACTERS, b"")))
            spaces = {"tokenizer.ggml.remove_extra_whitespaces": bool(normalizer.get(_EXTRA_SPACES, True))}
            return Words("t5", "default", texts, kinds, scores, extra=extra | spaces, roles=roles)
    raise UnsupportedModel(f"{path} is made of words or letters, which GGUF has no vocabulary for")


def from_pairs(tokenizer: Mapping[str, Any]) -> Words:
    """Byte pairs over `▁` in a tokenizer.json: a token's score is the rank of the first merge that makes it."""
    model = tokenizer["model"]
    words = Words.of("llama", model["vocab"], scores=[])
    assert words.scores is not None
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(merge_pairs(model.get("merges", ()))):
        ranks.setdefault("".join(pair), rank)
    for token, text in enumerate(words.texts):
        single = len(text) == 1
        words.scores[token] = -float(ranks[text]) if text in ranks else 0.0 if single else 10 * ADDED_SCORE
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            words.kinds[token] = Kind.BYTE
    if (unknown := model["vocab"].get(model.get("unk_token"))) is not None:
        words.kinds[unknown], words.roles["unk"] = Kind.UNKNOWN, unknown
    words.extra["tokenizer.ggml.add_space_prefix"] = _prepends(tokenizer)
    return words


def from_unigram(tokenizer: Mapping[str, Any]) -> Words:
    """A unigram model in a tokenizer.json."""
    model = tokenizer["model"]
    texts, scores = [str(text) for text, _ in model["vocab"]], [float(score) for _, score in model["vocab"]]
    words = Words("t5", "default", texts, [Kind.NORMAL] * len(texts), scores)
    if (unknown := model.get("unk_id")) is not None:
        words.kinds[unknown], words.roles["unk"] = Kind.UNKNOWN, unknown
    blobs = [
        step["precompiled_charsmap"] for step in steps(tokenizer.get("normalizer")) if step["type"] == "Precompiled"
    ]
    words.extra |= _characters(base64.b64decode(blobs[0]) if blobs and blobs[0] else b"")
    words.extra |= {
        "tokenizer.ggml.add_space_prefix": _prepends(tokenizer),
        "tokenizer.ggml.remove_extra_whitespaces": bool(blobs),
    }
    return words


def steps(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or post-processor of a tokenizer.json."""
    if part is None:
        return
    inner = part.get("normalizers", part.get("pretokenizers", part.get("processors")))
    for step in [part] if inner is None else inner:
        yield from steps(step) if step is not part else iter((part,))


def _prepends(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a space comes before a text."""
    if any(step["type"] == "Prepend" for step in steps(tokenizer.get("normalizer"))):
        return True
    metaspaces = [step for step in steps(tokenizer.get("pre_tokenizer")) if step["type"] == "Metaspace"]
    return any(
        step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True) for step in metaspaces
    )


def _characters(blob: bytes) -> dict[str, object]:
    return {"tokenizer.ggml.precompiled_charsmap": np.frombuffer(blob, np.uint8)} if blob else {}


def _message(fields: list[Field], number: int) -> dict[int, int | bytes]:
    found = next((value for key, value in fields if key == number), b"")
    return dict(_fields(found)) if isinstance(found, bytes) else {}


def _fields(data: bytes) -> Iterator[Field]:
    """Numbers and values of a protocol buffer's fields: integers, or bytes of what is longer."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        match key & 7:
            case 0:
                value, place = _varint(data, place)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, place = _varint(data, place)
            case 5:
                length = 4
            case _:
                raise ValueError("a field of an unknown kind")
        if place + length > len(data):
            raise ValueError("a field is cut off")
        yield key >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1
