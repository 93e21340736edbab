"""A vocabulary on its way to GGUF: every id's text, kind and score."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from llamina.errors import ModelFileError

# Tokens that files call ordinary, though no text should ever spell them.
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
class Words:
    """Tokens by id. `scores` and `merges` are None where the model has none; `extra` are keys of its own."""

    model: str
    pre: str
    texts: list[str]
    kinds: list[Kind]
    scores: list[float] | None = None
    merges: list[str] | None = None
    extra: dict[str, object] = field(default_factory=dict)
    roles: dict[str, int] = field(default_factory=dict)  # tokens with a role, as the vocabulary itself numbers them

    @classmethod
    def of(cls, model: str, ids: Mapping[str, int], **rest: Any) -> "Words":
        """A vocabulary from texts and their ids; holes are filled with unused tokens."""
        size = 1 + max(ids.values(), default=-1)
        if min(ids.values(), default=0) < 0 or size > 4 * len(ids) + 1024:
            raise ModelFileError(f"the tokenizer has {len(ids)} tokens with ids up to {size - 1}: it is damaged")
        words = cls(model, "default", [], [], **rest)
        words.pad(size)
        for text, token in ids.items():
            words.texts[token], words.kinds[token] = text, Kind.NORMAL
        return words

    def pad(self, size: int) -> None:
        """Unused tokens up to a size, as models have rows for a round number of them."""
        for token in range(len(self.texts), size):
            self.texts.append(f"[PAD{token}]")
            self.kinds.append(Kind.UNUSED)
            if self.scores is not None:
                self.scores.append(10 * ADDED_SCORE)

    def add(self, token: int, text: str, special: bool) -> None:
        """A token that was added beside the model's own: a control token, or one that users defined."""
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
        found: dict[str, object] = {
            "tokenizer.ggml.model": self.model,
            "tokenizer.ggml.pre": self.pre,
            "tokenizer.ggml.tokens": self.texts,
            "tokenizer.ggml.token_type": [int(kind) for kind in self.kinds],
        }
        if self.scores is not None:
            found["tokenizer.ggml.scores"] = self.scores
        if self.merges is not None:
            found["tokenizer.ggml.merges"] = self.merges
        return found | self.extra


def merge_pairs(merges: Iterable[Any]) -> list[tuple[str, str]]:
    """The merges of a tokenizer.json, which writes them as one text or as two."""
    pairs = []
    for merge in merges:
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        pairs.append((str(left), str(right)))
    return pairs
