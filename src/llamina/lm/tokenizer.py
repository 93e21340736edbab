"""A byte-level BPE tokenizer made by hand: a vocabulary of byte strings, and merges in order."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import BPE

from llamina.errors import RequestError
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.pieces import byte_letters
from llamina.tokenizer.vocabulary import Vocabulary

Pair = tuple[bytes, bytes]
PRE = "gpt-2"  # how text is split into words, which no merge crosses
_NORMAL, _CONTROL = 1, 3  # GGUF's types of tokens
_LETTERS = {byte: letter for letter, byte in byte_letters().items()}


@dataclass(frozen=True)
class Vocab:
    """Tokens as bytes, by id. Special tokens stand for no text; their bytes are their names.

    Raises RequestError for a token that is there twice, or a special token that is not there.
    """

    tokens: tuple[bytes, ...]
    special: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        twice = [token for token, n in Counter(self.tokens).items() if n > 1]
        if twice:
            raise RequestError(f"the token {twice[0]!r} is there twice: leave one out", "tokens")
        for name, token in self.special.items():
            if not 0 <= token < self.size:
                raise RequestError(f"{name} is token {token}: it must be from 0 to {self.size - 1}", "special")

    @classmethod
    def gpt2_byte_vocab(cls) -> Self:
        """The 256 bytes, in GPT-2's order."""
        return cls(tuple(bytes([byte]) for byte in byte_letters().values()))

    def with_extra_tokens(self, tokens: Iterable[bytes], special: Iterable[str] = ()) -> "Vocab":
        """This one with more tokens after its own, and after them special tokens of these names."""
        known = (*self.tokens, *tokens)
        names = {name: len(known) + i for i, name in enumerate(special)}
        return Vocab((*known, *(name.encode() for name in names)), {**self.special, **names})

    @property
    def size(self) -> int:
        return len(self.tokens)

    def bytes_to_id(self, token: bytes) -> int | None:
        """The token of these bytes, or None. Special tokens have no bytes."""
        return self._ids.get(token)

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        special = {*self.special.values()}
        return {token: i for i, token in enumerate(self.tokens) if i not in special}

    def id_to_bytes(self, token: int) -> bytes:
        """The bytes of a token; of a special token, its name. Raises RequestError if there is no such token."""
        if not 0 <= token < self.size:
            raise RequestError(f"token {token} is outside the vocabulary of {self.size} tokens", "token")
        return self.tokens[token]

    def special_id(self, name: str) -> int | None:
        """The special token of a name, or None."""
        return self.special.get(name)


class BpeTokenizer(Tokenizer):
    """The engine's tokenizer for a vocabulary and merges of one's own; earlier merges go first.

    `eos` is the special token that ends a text, `bos` the one that begins it, which `encode(add_special=True)` puts
    there. Raises RequestError for names that are no special tokens, or merges of what are no tokens.
    """

    def __init__(self, vocab: Vocab, merges: Sequence[Pair], *, eos: str, bos: str | None = None) -> None:
        known = set(vocab.tokens)
        for left, right in merges:
            if missing := {left, right, left + right} - known:
                raise RequestError(f"{left!r} and {right!r} cannot be merged: {min(missing)!r} is no token", "merges")
        self.vocab = vocab
        self.merges = tuple(merges)
        self.metadata = _metadata(vocab, merges, eos, bos)  # GGUF's keys
        self._names = {"eos_token": eos} | ({"bos_token": bos} if bos is not None else {})
        super().__init__(Vocabulary.read(self.metadata), self.metadata)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer.json and tokenizer_config.json, which transformers and `llamina convert` read."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        texts: list[str] = self.metadata["tokenizer.ggml.tokens"]
        rust = RustTokenizer(
            BPE({text: i for i, text in enumerate(texts)}, [(_spell(a), _spell(b)) for a, b in self.merges])
        )
        rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        rust.decoder = decoders.ByteLevel()
        rust.add_special_tokens([AddedToken(name, special=True) for name in self.vocab.special])
        rust.save(str(path / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": self.add_bos, **self._names}
        (path / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _metadata(vocab: Vocab, merges: Sequence[Pair], eos: str, bos: str | None) -> dict[str, Any]:
    for role, name in (("eos", eos), ("bos", bos)):
        if name is not None and name not in vocab.special:
            have = ", ".join(vocab.special) or "none"
            raise RequestError(f"{role} is {name!r}, which is no special token (there are: {have}): add it", role)
    names = {token: name for name, token in vocab.special.items()}
    texts = [names.get(i) or _spell(token) for i, token in enumerate(vocab.tokens)]
    if alike := {*names.values()} & {text for i, text in enumerate(texts) if i not in names}:
        raise RequestError(f"the special token {min(alike)!r} is spelt like another token: rename it", "special")
    keys: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": PRE,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [_CONTROL if i in names else _NORMAL for i in range(vocab.size)],
        "tokenizer.ggml.merges": [f"{_spell(left)} {_spell(right)}" for left, right in merges],
        "tokenizer.ggml.eos_token_id": vocab.special[eos],
        "tokenizer.ggml.bos_token_id": vocab.special[eos if bos is None else bos],  # as GPT-2: one token for both
        "tokenizer.ggml.add_bos_token": bos is not None,
    }
    return keys


def _spell(token: bytes) -> str:
    """Bytes in GPT-2's alphabet, a visible letter for each."""
    return "".join(_LETTERS[byte] for byte in token)
