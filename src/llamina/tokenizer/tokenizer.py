"""Text ⇄ tokens, for every kind of vocabulary that GGUF files carry."""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from llamina.errors import ModelNotFound, RequestError
from llamina.tokenizer.known_tokens import assign_roles
from llamina.tokenizer.named_templates import TEMPLATES
from llamina.tokenizer.pieces import Pieces, clean
from llamina.tokenizer.segmentation import segmentation
from llamina.tokenizer.special_tokens import Partition
from llamina.tokenizer.stream import Detokenizer
from llamina.tokenizer.template import ChatTemplate, Message
from llamina.tokenizer.vocabulary import Mark, Vocabulary

_TEMPLATE = "tokenizer.chat_template"


class Tokenizer:
    """A model's vocabulary: its ids are those of llama.cpp.

    Safe to share between threads.
    """

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, Any]) -> None:
        self.vocabulary = vocabulary
        self._segmentation = segmentation(vocabulary, metadata)
        self.eog = assign_roles(vocabulary, metadata)
        self._pieces = Pieces(vocabulary)
        self._templates = _templates(metadata)
        self._compiled: dict[str, ChatTemplate] = {}
        suppressed = metadata.get("tokenizer.ggml.suppress_tokens")
        found = () if suppressed is None else (int(token) for token in suppressed)
        self.suppressed = frozenset(token for token in found if 0 <= token < self.vocab_size)

    @classmethod
    def from_gguf(cls, path: str | os.PathLike[str]) -> Self:
        """The tokenizer of a GGUF file; a file without weights will do.

        Raises `ModelNotFound`, `ModelFileError` or `UnsupportedModel`.
        """
        from llamina.gguf import open_model

        return cls.from_metadata(open_model(path).metadata)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """The tokenizer that a file's metadata describes; raises `ModelFileError` or `UnsupportedModel`."""
        return cls(Vocabulary.read(metadata), metadata)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """The tokenizer of a GGUF file, of a tokenizer.json with what lies beside it, or of a Hugging Face folder.

        Raises `ModelNotFound`, `ModelFileError` or `UnsupportedModel`.
        """
        return cls.from_metadata(vocabulary_of(path))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The tokenizer that the contents of a tokenizer.json describe; it has no chat template.

        Raises `ModelFileError` or `UnsupportedModel`.
        """
        from llamina.tokenizer.huggingface.metadata import vocabulary_keys

        return cls.from_metadata(vocabulary_keys(Path(), text))

    def encode(
        self, text: str, add_special: bool = False, parse_special: bool = False, *, continued: bool = False
    ) -> list[int]:
        """The tokens of a text.

        `add_special` puts the tokens around it that the model expects; `parse_special` lets the text name
        control tokens, as a rendered chat template does. Never parse text that came from outside. `continued` says
        that other text comes before, so that SentencePiece puts no space in front.
        """
        partition = self._partition if parse_special else self._partition_plain
        ids = [self.vocabulary.special[name] for name in self._prefix] if add_special else []
        after_special = not continued
        for fragment in partition.split(_valid(text)):
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                ids += self._segmentation.encode(" " + fragment if self._prepends and after_special else fragment)
            after_special = isinstance(fragment, int)
        return ids + [self.vocabulary.special[name] for name in self._suffix] if add_special else ids

    def encode_batch(
        self, texts: Iterable[str], add_special: bool = False, parse_special: bool = False
    ) -> list[list[int]]:
        """The tokens of each text: see `encode`."""
        if isinstance(texts, str):
            raise RequestError("texts is one text: it must be a list of texts", "texts")
        return [self.encode(text, add_special, parse_special) for text in texts]

    def decode(
        self, ids: Iterable[int], skip_special: bool = True, *, continued: bool = False, cleaned: bool = False
    ) -> str:
        """The text of some tokens; control and unknown tokens are left out, or written as they are called.

        `continued` says that other tokens came before, so a leading space is not the one that SentencePiece
        puts before a text. `cleaned` takes out spaces before punctuation, if the vocabulary
        asks for it.
        """
        stream = self.stream(skip_special, continued=continued)
        text = "".join([stream.push(token) for token in ids]) + stream.flush()
        return clean(text) if cleaned and self.vocabulary.rules.clean_spaces else text

    def stream(
        self, skip_special: bool = True, *, continued: bool = False, shown: frozenset[int] = frozenset()
    ) -> Detokenizer:
        """A decoder that takes tokens one by one; special tokens that are `shown` are not skipped."""
        return Detokenizer(self, skip_special, continued, shown)

    def token_bytes(self, token: int) -> bytes:
        """Exactly the bytes that a token adds to a text; raises `RequestError` if there is no such token."""
        self._check(token)
        return self._pieces[token]

    def token_text(self, token: int) -> str:
        """How the vocabulary spells a token, which need not be its text: byte-level BPE writes a space as Ġ."""
        self._check(token)
        return self.vocabulary.texts[token]

    def token_id(self, text: str) -> int | None:
        """The token that the vocabulary spells so, or None."""
        return self.vocabulary.ids.get(text)

    def token_ids(self, texts: Iterable[str]) -> list[int]:
        """The tokens of those texts that are tokens."""
        return [token for token in map(self.token_id, texts) if token is not None]

    def is_special(self, token: int) -> bool:
        """Whether a token says something about the text instead of being part of it (control or unknown)."""
        self._check(token)
        return token in self._silent

    def is_control(self, token: int) -> bool:
        """Whether a token is a control token."""
        self._check(token)
        return self.vocabulary.has(token, Mark.CONTROL)

    def is_eog(self, token: int) -> bool:
        """Whether a token ends a generation."""
        return token in self.eog

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.texts)

    @property
    def add_bos(self) -> bool:
        return self.vocabulary.rules.add_bos

    @property
    def add_eos(self) -> bool:
        return self.vocabulary.rules.add_eos

    @property
    def add_sep(self) -> bool:
        return self.vocabulary.rules.add_sep

    @property
    def add_space_prefix(self) -> bool:
        return self.vocabulary.rules.add_space_prefix

    @property
    def special(self) -> dict[str, int]:
        """The tokens with a role: bos, eos, eot, eom, unk, sep, pad, mask, fim_pre, fim_suf, fim_mid, ..."""
        return dict(self.vocabulary.special)

    @property
    def bos(self) -> int | None:
        return self.vocabulary.special.get("bos")

    @property
    def eos(self) -> int | None:
        return self.vocabulary.special.get("eos")

    @property
    def eot(self) -> int | None:
        return self.vocabulary.special.get("eot")

    @property
    def unk(self) -> int | None:
        return self.vocabulary.special.get("unk")

    @property
    def sep(self) -> int | None:
        return self.vocabulary.special.get("sep")

    @property
    def pad(self) -> int | None:
        return self.vocabulary.special.get("pad")

    @property
    def mask(self) -> int | None:
        return self.vocabulary.special.get("mask")

    @property
    def chat_template(self) -> str | None:
        """The source of the default chat template."""
        return self._templates.get("default")

    @property
    def chat_templates(self) -> dict[str, str]:
        """The sources of all chat templates by name; the unnamed one is `default`."""
        return dict(self._templates)

    def template(self, name: str = "default") -> ChatTemplate:
        """A chat template of the file, or one of llama.cpp's (`chatml`, ...), with the model's tokens at hand."""
        source = self._templates.get(name) or TEMPLATES.get(name)
        if source is None:
            have = ", ".join(self._templates) or "none"
            raise RequestError(f"the model has no chat template {name!r} (it has: {have}): give one", "chat_template")
        roles = ("bos", "eos", "unk", "sep", "pad", "mask")
        tokens = {f"{r}_token": self.vocabulary.texts[i] for r, i in self.vocabulary.special.items() if r in roles}
        return ChatTemplate(source, **tokens)

    def render_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template: str | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt of a conversation by the model's template: encode it with `parse_special`."""
        return self.chat_template_for(bool(tools), template).render(messages, tools, add_generation_prompt, **kwargs)

    def chat_template_for(self, tools: bool = False, name: str | None = None) -> ChatTemplate:
        """The template that conversations with or without tools are rendered by, compiled once."""
        name = name or ("tool_use" if tools and "tool_use" in self._templates else "default")
        if name not in self._compiled:
            self._compiled[name] = self.template(name)
        return self._compiled[name]

    @cached_property
    def _silent(self) -> frozenset[int]:
        return frozenset(self.vocabulary.with_mark(Mark.CONTROL | Mark.UNKNOWN))

    @cached_property
    def _partition(self) -> Partition:
        return Partition(self.vocabulary, parse_special=True)

    @cached_property
    def _partition_plain(self) -> Partition:
        return Partition(self.vocabulary, parse_special=False)

    @property
    def _prepends(self) -> bool:
        return self.vocabulary.model == "llama" and self.add_space_prefix

    @property
    def _prefix(self) -> tuple[str, ...]:
        wanted = self.vocabulary.model == "bert" or (self.add_bos and self.vocabulary.model not in ("rwkv", "plamo2"))
        return ("bos",) if wanted and self.bos is not None else ()

    @property
    def _suffix(self) -> tuple[str, ...]:
        if self.vocabulary.model == "bert":
            return ("sep",) if self.sep is not None else ()
        wanted = self.add_eos and self.vocabulary.model not in ("rwkv", "plamo2")
        return ("eos",) if wanted and self.eos is not None else ()

    def _check(self, token: int) -> None:
        if not 0 <= token < self.vocab_size:
            raise RequestError(f"token {token} is outside the vocabulary of {self.vocab_size} tokens", "token")


def vocabulary_of(path: str | os.PathLike[str], size: int | None = None) -> Mapping[str, Any]:
    """The metadata with a tokenizer of a GGUF file, a tokenizer.json or a Hugging Face folder: see `from_file`.

    `size` is the number of a model's embeddings, up to which unused tokens fill a vocabulary that is not of GGUF.
    """
    found = Path(path)
    if found.is_dir() or found.suffix in (".json", ".model", ".txt"):
        from llamina.tokenizer.huggingface.metadata import vocabulary_keys

        if not found.exists():
            raise ModelNotFound(f"{found}: no such file: check the path")
        return vocabulary_keys(found if found.is_dir() else found.parent, size=size)
    from llamina.gguf import open_model

    return open_model(found).metadata


def with_template(metadata: Mapping[str, Any], source: str | None) -> Mapping[str, Any]:
    """Metadata with a chat template in place of all that it has; unchanged without one."""
    if source is None:
        return metadata
    others = {key: value for key, value in metadata.items() if not key.startswith(_TEMPLATE)}
    return {**others, _TEMPLATE: source}


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    found = {"default": metadata[_TEMPLATE]} if _TEMPLATE in metadata else {}
    for key, source in metadata.items():
        if key.startswith(_TEMPLATE + "."):
            found[key.removeprefix(_TEMPLATE + ".")] = source
    return found


def _valid(text: str) -> str:
    """The text without lone surrogates, which no vocabulary can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
