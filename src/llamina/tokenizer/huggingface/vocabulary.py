"""A vocabulary for GGUF: text, kind and score of each token."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from llamina.errors import ModelFileError

# Tokens that files do not mark as special, although text must never match them.
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused\d+>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL)
ADDED_SCORE = -1000.0


class Kind(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(slots=True)
class Vocabulary:
    """Tokens by id. `scores` and `merges` are None if the model has none; `extra` are further metadata keys."""

    model: str
    pre: str
    texts: list[str]
    kinds: list[Kind]
    scores: list[float] | None = None
    merges: list[str] | None = None
    extra: dict[str, object] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)  # role → token, as the vocabulary file has them

    @classmethod
    def of(cls, model: str, ids: Mapping[str, int], **rest: Any) -> "Vocabulary":
        """Return a vocabulary of texts and ids; gaps are filled with unused tokens. Raises ModelFileError."""
        size = 1 + max(ids.values(), default=-1)
        if min(ids.values(), default=0) < 0 or size > 4 * len(ids) + 1024:
            raise ModelFileError(f"the tokenizer has {len(ids)} tokens with ids up to {size - 1}: it is damaged")
        vocabulary = cls(model, "default", [], [], **rest)
        vocabulary.pad(size)
        for text, token in ids.items():
            vocabulary.texts[token], vocabulary.kinds[token] = text, Kind.NORMAL
        return vocabulary

    def pad(self, size: int) -> None:
        """Append unused tokens up to a size: models have embeddings for a rounded number of tokens."""
        for token in range(len(self.texts), size):
            self.texts.append(f"[PAD{token}]")
            self.kinds.append(Kind.UNUSED)
            if self.scores is not None:
                self.scores.append(10 * ADDED_SCORE)

    def add(self, token: int, text: str, special: bool) -> None:
        """Set an added token: a control token, or a user-defined one."""
        self.pad(token + 1)
        if self.kinds[token] is Kind.UNKNOWN and self.texts[token] == text:
            return
        if special or _LOOKS_SPECIAL.fullmatch(text):
            self.texts[token], self.kinds[token] = text, Kind.CONTROL
        else:
            self.texts[token], self.kinds[token] = text.replace("▁", " "), Kind.USER_DEFINED
        if self.scores is not None:
            self.scores[token] = ADDED_SCORE

    def metadata(self) -> dict[str, object]:
        """Return the metadata keys of the vocabulary."""
        keys: dict[str, object] = {
            "tokenizer.ggml.model": self.model,
            "tokenizer.ggml.pre": self.pre,
            "tokenizer.ggml.tokens": self.texts,
            "tokenizer.ggml.token_type": [int(kind) for kind in self.kinds],
        }
        if self.scores is not None:
            keys["tokenizer.ggml.scores"] = self.scores
        if self.merges is not None:
            keys["tokenizer.ggml.merges"] = self.merges
        return keys | self.extra


def merge_pairs(merges: Iterable[Any]) -> list[tuple[str, str]]:
    """Return the merges of a tokenizer.json, where each is one text or two."""
    pairs = []
    for merge in merges:
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        pairs.append((str(left), str(right)))
    return pairs
