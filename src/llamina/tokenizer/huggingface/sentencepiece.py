"""SentencePiece vocabularies: from tokenizer.model, a protocol buffer, or from a tokenizer.json."""

import base64
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from llamina.errors import ModelFileError, UnsupportedModel
from llamina.tokenizer.huggingface.vocabulary import ADDED_SCORE, Kind, Vocabulary, merge_pairs

Field: TypeAlias = tuple[int, int | bytes]
# Numbers of fields in the protocol buffer, and of model types.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE = 3
_ROLES = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}  # field, default
_CHARACTERS, _DUMMY_PREFIX, _EXTRA_SPACES = 2, 3, 4
_UNIGRAM = 1


def from_model(path: Path) -> Vocabulary:
    """Return the vocabulary of a SentencePiece file. Raises ModelFileError or UnsupportedModel."""
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
        raise ModelFileError(f"{path} has no tokens: fetch it again")
    roles = {role: int(trainer.get(field, default)) for role, (field, default) in _ROLES.items()}
    roles = {role: token for role, token in roles.items() if 0 <= token < len(texts)}
    prefix = {"tokenizer.ggml.add_space_prefix": bool(normalizer.get(_DUMMY_PREFIX, True))}
    match trainer.get(_MODEL_TYPE, _UNIGRAM):
        case 2:
            return Vocabulary("llama", "default", texts, kinds, scores, extra=dict(prefix), roles=roles)
        case 1:
            extra = prefix | _characters(bytes(normalizer.get(_CHARACTERS, b"")))
            spaces = {"tokenizer.ggml.remove_extra_whitespaces": bool(normalizer.get(_EXTRA_SPACES, True))}
            return Vocabulary("t5", "default", texts, kinds, scores, extra=extra | spaces, roles=roles)
    raise UnsupportedModel(f"{path} is a model of words or characters, which GGUF does not support")


def from_pairs(tokenizer: Mapping[str, Any], by_merges: bool = False) -> Vocabulary:
    """Return the BPE vocabulary of a tokenizer.json with byte fallback; scores are negated ranks of merges.

    With `by_merges` the merges themselves are kept, too, and count: GGUF's model `gemma4`.
    """
    model = tokenizer["model"]
    vocabulary = Vocabulary.of("llama", model["vocab"], scores=[])
    assert vocabulary.scores is not None
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(merge_pairs(model.get("merges", ()))):
        ranks.setdefault("".join(pair), rank)
    for token, text in enumerate(vocabulary.texts):
        single = len(text) == 1
        vocabulary.scores[token] = -float(ranks[text]) if text in ranks else 0.0 if single else 10 * ADDED_SCORE
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            vocabulary.kinds[token] = Kind.BYTE
    if (unknown := model["vocab"].get(model.get("unk_token"))) is not None:
        vocabulary.kinds[unknown], vocabulary.roles["unk"] = Kind.UNKNOWN, unknown
    vocabulary.extra["tokenizer.ggml.add_space_prefix"] = _prepends(tokenizer)
    if by_merges:
        vocabulary.model = vocabulary.pre = "gemma4"
        vocabulary.merges = [" ".join(pair) for pair in merge_pairs(model.get("merges", ()))]
    return vocabulary


def from_unigram(tokenizer: Mapping[str, Any]) -> Vocabulary:
    """Return the unigram vocabulary of a tokenizer.json."""
    model = tokenizer["model"]
    texts, scores = [str(text) for text, _ in model["vocab"]], [float(score) for _, score in model["vocab"]]
    vocabulary = Vocabulary("t5", "default", texts, [Kind.NORMAL] * len(texts), scores)
    if (unknown := model.get("unk_id")) is not None:
        vocabulary.kinds[unknown], vocabulary.roles["unk"] = Kind.UNKNOWN, unknown
    blobs = [
        step["precompiled_charsmap"] for step in steps(tokenizer.get("normalizer")) if step["type"] == "Precompiled"
    ]
    vocabulary.extra |= _characters(base64.b64decode(blobs[0]) if blobs and blobs[0] else b"")
    vocabulary.extra |= {
        "tokenizer.ggml.add_space_prefix": _prepends(tokenizer),
        "tokenizer.ggml.remove_extra_whitespaces": bool(blobs),
    }
    return vocabulary


def steps(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer, pre-tokenizer or post-processor of a tokenizer.json."""
    if part is None:
        return
    inner = part.get("normalizers", part.get("pretokenizers", part.get("processors")))
    for step in [part] if inner is None else inner:
        yield from steps(step) if step is not part else iter((part,))


def _prepends(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a space is put before a text."""
    if any(step["type"] == "Prepend" for step in steps(tokenizer.get("normalizer"))):
        return True
    metaspaces = [step for step in steps(tokenizer.get("pre_tokenizer")) if step["type"] == "Metaspace"]
    return any(
        step.get("prepend_scheme", "always") != "never" and step.get("add_prefix_space", True) for step in metaspaces
    )


def _characters(blob: bytes) -> dict[str, object]:
    return {"tokenizer.ggml.precompiled_charsmap": np.frombuffer(blob, np.uint8)} if blob else {}


def _message(fields: list[Field], number: int) -> dict[int, int | bytes]:
    message = next((value for key, value in fields if key == number), b"")
    return dict(_fields(message)) if isinstance(message, bytes) else {}


def _fields(data: bytes) -> Iterator[Field]:
    """Yield numbers and values of a protocol buffer's fields: integers, or bytes. Raises ValueError."""
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
            raise ValueError("a field is truncated")
        yield key >> 3, data[place : place + length]
        place += length


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1
