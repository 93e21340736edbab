"""What a GGUF file says about its vocabulary, as llama.cpp reads it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from llamina.errors import ModelFileError, UnsupportedModel
from llamina.tokenizer.pretokenizers import Pretokenizer, pretokenizer


class Mark(IntFlag):
    """The attributes of a token. It may have several: GGUF gives one, its text may add others."""

    UNKNOWN = 1
    UNUSED = 2
    NORMAL = 4
    CONTROL = 8
    USER_DEFINED = 16
    BYTE = 32
    LSTRIP = 128
    RSTRIP = 256


# Indexed by the values of `tokenizer.ggml.token_type`.
_MARK_OF_TYPE = np.array([0, 4, 1, 8, 16, 2, 32], np.uint16)

SPECIAL_NAMES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # misspelt in the format
    "pad": "padding_token_id",
    "mask": "mask_token_id",
    "fim_pre": "fim_pre_token_id prefix_token_id",
    "fim_suf": "fim_suf_token_id suffix_token_id",
    "fim_mid": "fim_mid_token_id middle_token_id",
    "fim_pad": "fim_pad_token_id",
    "fim_rep": "fim_rep_token_id",
    "fim_sep": "fim_sep_token_id",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """How text becomes tokens and back, beside the vocabulary itself."""

    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    add_space_prefix: bool = False
    clean_spaces: bool = False
    escape_spaces: bool = True
    remove_extra_spaces: bool = False
    lowercase: bool = True
    strip_accents: bool = True


_RULES = {
    "llama": Rules(add_bos=True, add_space_prefix=True),
    "bert": Rules(add_bos=True, add_sep=True, clean_spaces=True),
    "t5": Rules(add_eos=True),
    "rwkv": Rules(escape_spaces=False),
    "plamo2": Rules(),
}

_DEFAULT_SPECIAL: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "gpt2": {"bos": 11, "eos": 11},
    "hybriddna": {"bos": 11, "eos": 11},
    "whitespace": {"bos": 11, "eos": 11},
    "gemma4": {},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
    "rwkv": {},
    "plamo2": {"bos": 1, "eos": 2, "unk": 0, "pad": 3},
}

WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
BYTE_PAIR_MODELS = frozenset({"gpt2", "gemma4", "hybriddna", "whitespace"})


@dataclass(slots=True)
class Vocabulary:
    """Tokens by id, ids by text, the tokens with a role (bos, eos, …), and the rules."""

    model: str
    pre: Pretokenizer | None
    rules: Rules
    texts: list[str]
    scores: npt.NDArray[np.float32]
    marks: npt.NDArray[np.uint16]
    special: dict[str, int]
    ids: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = {text: i for i, text in enumerate(self.texts)}

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> Self:
        """The vocabulary in a file's metadata.

        Raises `UnsupportedModel` for a kind that is not known, and `ModelFileError` if it is damaged.
        """
        model = metadata.get("tokenizer.ggml.model")
        if not isinstance(model, str) or model not in _DEFAULT_SPECIAL:
            raise UnsupportedModel(_unsupported(model))
        pre = _pretokenizer(model, metadata)
        texts = _texts(metadata)
        return cls(
            model=model,
            pre=pre,
            rules=_rules(model, pre, metadata),
            texts=texts,
            scores=_numbers(metadata, "scores", len(texts), 0).astype(np.float32),
            marks=_marks(_numbers(metadata, "token_type", len(texts), 1)),
            special=_special(model, pre, metadata, len(texts)),
        )

    def has(self, token: int, mark: Mark) -> bool:
        """Whether a token has one of these attributes."""
        return bool(self.marks[token] & mark)

    def with_mark(self, mark: Mark) -> list[int]:
        """The tokens that have one of these attributes, ascending."""
        return [int(i) for i in np.flatnonzero(self.marks & mark)]


def byte_value(text: str) -> int:
    """The value of a byte token by its text: 10 for `<0x0A>`. Raises `ModelFileError` if it is spelt another way."""
    if re.fullmatch("<0x[0-9A-Fa-f]{2}>", text) is None:
        raise ModelFileError(
            f"the token {text!r} is said to be a byte, which is spelt like <0x0A>: the file is damaged"
        )
    return int(text[3:5], 16)


def _unsupported(model: object) -> str:
    if model is None or str(model) in ("none", "no_vocab"):
        return f"tokenizer.ggml.model is {model!r}: the file has no vocabulary: give token ids instead of text"
    known = ", ".join(sorted(_DEFAULT_SPECIAL))
    return f"tokenizer.ggml.model is {model!r}, which llamina does not know (it knows {known}): convert the model again"


def _pretokenizer(model: str, metadata: Mapping[str, Any]) -> Pretokenizer | None:
    if model not in BYTE_PAIR_MODELS:
        return None
    pre = metadata.get("tokenizer.ggml.pre", "")
    if not isinstance(pre, str):
        raise ModelFileError(f"tokenizer.ggml.pre is {pre!r}: must be a name: convert the model again")
    return pretokenizer("gemma4" if model == "gemma4" else pre)


def _texts(metadata: Mapping[str, Any]) -> list[str]:
    texts = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ModelFileError(
            "tokenizer.ggml.tokens is missing, empty or not text: convert the model again with its vocabulary"
        )
    return [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]


def _numbers(metadata: Mapping[str, Any], key: str, n_tokens: int, default: int) -> npt.NDArray[Any]:
    values = metadata.get(f"tokenizer.ggml.{key}")
    if values is None:
        return np.full(n_tokens, default)
    try:
        numbers = np.asarray(values)
    except ValueError:  # arrays of different lengths in an array
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or numbers.dtype.kind not in ("iuf" if key == "scores" else "iu"):
        raise ModelFileError(f"tokenizer.ggml.{key} is not an array of numbers: convert the model again")
    if len(numbers) < n_tokens:
        raise ModelFileError(f"tokenizer.ggml.{key} has {len(numbers)} values for {n_tokens} tokens: convert again")
    return numbers[:n_tokens]


def _marks(types: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    known = (types >= 0) & (types < len(_MARK_OF_TYPE))
    return _MARK_OF_TYPE[np.where(known, types, 0)]


def _special(model: str, pre: Pretokenizer | None, metadata: Mapping[str, Any], n_tokens: int) -> dict[str, int]:
    """The tokens with a role: what the file says, else the model's defaults, if they exist."""
    found = {name: i for name, i in _DEFAULT_SPECIAL[model].items() if i < n_tokens}
    if pre is not None and not pre.default_bos:
        found.pop("bos", None)
    for name, keys in SPECIAL_NAMES.items():
        for key in keys.split():
            token = metadata.get(f"tokenizer.ggml.{key}")
            if token is not None and (not isinstance(token, int) or isinstance(token, bool)):
                raise ModelFileError(f"tokenizer.ggml.{key} is {token!r}: must be a token: convert the model again")
            if token is not None and 0 <= token < n_tokens:
                found[name] = token
    return found


def _rules(model: str, pre: Pretokenizer | None, metadata: Mapping[str, Any]) -> Rules:
    if pre is not None:
        rules = Rules(
            add_bos=pre.add_bos,
            add_sep=pre.add_sep,
            clean_spaces=pre.clean_spaces,
            escape_spaces=pre.escape_spaces,
            lowercase=pre.lowercase,
        )
    else:
        rules = _RULES[model]

    def setting(key: str, default: bool) -> bool:
        value = metadata.get(f"tokenizer.ggml.{key}", default)
        if not isinstance(value, int):
            raise ModelFileError(f"tokenizer.ggml.{key} is {value!r}: must be true or false: convert the model again")
        return bool(value)

    lowercase = setting("normalizer.lowercase", rules.lowercase)
    # Files of Gemma 4 say false, and mean true. Only its pre-tokenizer, which has two names, has both of these rules.
    always_bos = pre is not None and pre.escape_spaces and pre.clean_spaces
    return replace(
        rules,
        add_bos=always_bos or setting("add_bos_token", rules.add_bos),
        add_eos=setting("add_eos_token", rules.add_eos),
        add_sep=setting("add_sep_token", rules.add_sep),
        add_space_prefix=setting("add_space_prefix", rules.add_space_prefix),
        remove_extra_spaces=setting("remove_extra_whitespaces", False),
        lowercase=lowercase,
        strip_accents=setting("normalizer.strip_accents", lowercase),
    )
