"""A tokenizer of Hugging Face as GGUF's `tokenizer.*` keys: vocabulary, special tokens, chat templates."""

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer as RustTokenizer

from llamina.errors import LlaminaError, ModelFileError, UnsupportedModel
from llamina.tokenizer.huggingface import sentencepiece
from llamina.tokenizer.huggingface.byte_bpe import MARKED, SAMPLES, byte_pairs
from llamina.tokenizer.huggingface.json_file import parse_json, read_json
from llamina.tokenizer.huggingface.vocabulary import Kind, Vocabulary
from llamina.tokenizer.tokenizer import Tokenizer

_ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # misspelt in GGUF
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
}
_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.txt")


class Settings(Protocol):
    """A model's config.json."""

    def get(self, names: str, default: Any = None, /) -> Any: ...


class Folder:
    """The files of a tokenizer. With `text`, the contents of a tokenizer.json, which has no others beside it."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        self.path = path
        self._text = text
        self.tokenizer = self._read("tokenizer.json") if text is None else parse_json(text, "tokenizer.json")
        self.rules = {**self._read("special_tokens_map.json"), **self._read("tokenizer_config.json")}
        if not isinstance(self.tokenizer.get("model", {}), dict):
            raise ModelFileError(f"{path / 'tokenizer.json'} has no model: fetch it again")

    def _read(self, name: str) -> dict[str, Any]:
        path = self.file(name)
        return read_json(path) if path else {}

    def file(self, name: str) -> Path | None:
        """Return the path of a file, or None if there is none."""
        path = self.path / name
        return path if self._text is None and path.is_file() else None

    def rust(self) -> RustTokenizer:
        """Return the tokenizer of Hugging Face's library. Raises ModelFileError."""
        try:
            path = str(self.path / "tokenizer.json")
            rust = RustTokenizer.from_file(path) if self._text is None else RustTokenizer.from_str(self._text)
        except Exception as error:  # the library raises plain Exception
            raise ModelFileError(f"{self.path / 'tokenizer.json'} cannot be read: {error}") from None
        rust.no_padding()
        rust.no_truncation()
        return rust

    def files(self, pattern: str) -> list[Path]:
        """Return the paths of files, in the order of their names."""
        return sorted(self.path.glob(pattern)) if self._text is None else []

    def pieces(self) -> Path | None:
        """Return the path of the SentencePiece file, or None."""
        return next((path for name in _FILES[1:3] if (path := self.file(name))), None)

    def added(self) -> Iterator[tuple[int, str, bool]]:
        """Yield (id, text, special) of each added token."""
        for text, token in self._read("added_tokens.json").items():
            yield int(token), str(text), False
        listed = {int(entry["id"]): entry for entry in self.tokenizer.get("added_tokens", ())}
        listed |= {int(token): entry for token, entry in self.rules.get("added_tokens_decoder", {}).items()}
        for token, entry in sorted(listed.items()):
            yield token, str(entry["content"]), bool(entry.get("special"))

    def named(self, role: str) -> str | None:
        """Return the text of the token with a role, or None."""
        entry = self.rules.get(f"{role}_token") or self.tokenizer.get("model", {}).get(f"{role}_token")
        for step in sentencepiece.steps(self.tokenizer.get("post_processor")):
            entry = entry or (step.get(role) or [None])[0]  # BERT's has its tokens in it
        entry = entry.get("content") if isinstance(entry, dict) else entry
        return entry if isinstance(entry, str) else None


def tokenizer_metadata(
    path: Path, settings: Settings, size: int | None, pre: str | None, notes: list[str], contents: str | None = None
) -> dict[str, object]:
    """Return all `tokenizer.*` keys for a model with `size` embeddings, or with as many as there are tokens.

    The tokenizer is that of a folder, or of the `contents` of a tokenizer.json. What is left out goes to `notes`.
    Raises ModelFileError for a damaged tokenizer or one of another model, UnsupportedModel if GGUF cannot hold it.
    """
    folder = Folder(path, contents)
    vocabulary = _vocabulary(folder, pre, str(settings.get("model_type", "")).startswith("gemma4"))
    for token, text, special in folder.added():
        if size is None or token < size:
            vocabulary.add(token, text, special)
        else:
            notes.append(f"token {token} ({text}) is left out: the model has {size} embeddings")
    size = len(vocabulary.texts) if size is None else size
    if len(vocabulary.texts) > size:
        raise ModelFileError(
            f"the tokenizer has {len(vocabulary.texts)} tokens, and the model {size}: they do not belong together"
        )
    vocabulary.pad(size)
    keys = vocabulary.metadata() | _roles(folder, settings, vocabulary)
    keys |= _affixes(folder, vocabulary) | _templates(folder)
    notes += _compare(folder, keys)
    return keys


def vocabulary_keys(path: Path, contents: str | None = None, size: int | None = None) -> dict[str, object]:
    """Return all `tokenizer.*` keys of a folder, or of the contents of a tokenizer.json, without a model.

    With `size`, unused tokens are added up to as many. Warns if texts become other tokens than with the tokenizer's own
    library. Raises as `tokenizer_metadata` does.
    """
    config, notes = path / "config.json", list[str]()
    settings = read_json(config) if contents is None and config.is_file() else dict[str, Any]()
    keys = tokenizer_metadata(path, settings, size, None, notes, contents)
    for note in notes:
        warnings.warn(note, stacklevel=4)
    return keys


def _vocabulary(folder: Folder, pre: str | None, by_merges: bool) -> Vocabulary:
    """Return the vocabulary, by the type of the tokenizer's model; `by_merges` is Gemma 4's kind of SentencePiece."""
    model = folder.tokenizer.get("model", {})
    steps = {step.get("type") for step in sentencepiece.steps(folder.tokenizer.get("pre_tokenizer"))}
    kind = model.get(
        "type", "WordPiece" if "max_input_chars_per_word" in model else "BPE" if "merges" in model else None
    )
    try:
        if (pieces := folder.pieces()) is not None and "ByteLevel" not in steps and kind != "Unigram":
            return sentencepiece.from_model(pieces)
        if kind == "BPE" and "ByteLevel" in steps:
            return byte_pairs(folder.tokenizer, folder.rust(), folder.rules, pre)
        if kind == "BPE" and model.get("byte_fallback"):
            return sentencepiece.from_pairs(folder.tokenizer, by_merges)
        if kind == "Unigram":
            return sentencepiece.from_unigram(folder.tokenizer)
        if kind == "WordPiece" or folder.file("vocab.txt"):
            return _word_pieces(folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, LlaminaError):
            raise
        raise ModelFileError(f"{folder.path / 'tokenizer.json'} is damaged: {error!r}") from None
    if kind is not None:
        raise UnsupportedModel(f"{folder.path / 'tokenizer.json'} has a {kind} model, which GGUF does not support")
    raise ModelFileError(f"{folder.path} has none of {', '.join(_FILES)}: fetch the tokenizer too")


def _word_pieces(folder: Folder) -> Vocabulary:
    """Return BERT's WordPiece vocabulary: a token that begins a word gets `▁`, others lose their `##`."""
    listed = folder.tokenizer.get("model", {}).get("vocab")
    if listed is None:
        lines = (folder.path / "vocab.txt").read_text(encoding="utf-8").splitlines()
        listed = {text: token for token, text in enumerate(lines)}
    vocabulary = Vocabulary.of("bert", listed)
    for token, text in enumerate(vocabulary.texts):
        if re.fullmatch(r"\[[A-Z]+\]", text):
            vocabulary.kinds[token] = Kind.CONTROL
        elif vocabulary.kinds[token] is Kind.NORMAL:
            vocabulary.texts[token] = text[2:] if text.startswith("##") else f"▁{text}"
    normalizer = next(
        (step for step in sentencepiece.steps(folder.tokenizer.get("normalizer")) if "lowercase" in step), {}
    )
    lowercase = bool(normalizer.get("lowercase", folder.rules.get("do_lower_case", True)))
    vocabulary.extra["tokenizer.ggml.normalizer.lowercase"] = lowercase
    accents = normalizer.get("strip_accents")
    vocabulary.extra["tokenizer.ggml.normalizer.strip_accents"] = lowercase if accents is None else bool(accents)
    return vocabulary


def _roles(folder: Folder, settings: Settings, vocabulary: Vocabulary) -> dict[str, object]:
    """Return the special tokens: by the tokenizer's names, else by the ids of config.json or of the vocabulary."""
    ids = {text: token for token, text in enumerate(vocabulary.texts)}
    keys: dict[str, object] = {}
    for role, key in _ROLES.items():
        other = {"bos": "cls", "eos": "sep"}.get(role, role)
        token = ids.get(folder.named(role) or folder.named(other) or "")
        if token is None:
            given = settings.get(f"{role}_token_id")
            given = given[0] if isinstance(given, list) and given else given
            token = (
                given if isinstance(given, int) and 0 <= given < len(vocabulary.texts) else vocabulary.roles.get(role)
            )
        if token is not None:
            keys[f"tokenizer.ggml.{key}"] = token
    return keys


def _affixes(folder: Folder, vocabulary: Vocabulary) -> dict[str, object]:
    """Return which tokens are put before and after a text."""
    keys: dict[str, object] = {}
    processors = list(sentencepiece.steps(folder.tokenizer.get("post_processor")))
    for step in processors:
        if step.get("type") == "TemplateProcessing":
            single = step.get("single", [])
            ends = [part.get("SpecialToken", {}).get("id") for part in (single[:1] + single[-1:])]
            keys["tokenizer.ggml.add_bos_token"], keys["tokenizer.ggml.add_eos_token"] = (bool(end) for end in ends)
        elif step.get("type") in ("RobertaProcessing", "BertProcessing"):
            keys |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
            keys["tokenizer.ggml.add_sep_token"] = True
    if vocabulary.model == "gpt2" and not keys:
        keys = {"tokenizer.ggml.add_bos_token": False}
    for key in ("add_bos_token", "add_eos_token"):
        value = folder.rules.get(key)
        if isinstance(value, bool):
            keys[f"tokenizer.ggml.{key}"] = value
    value = folder.rules.get("add_prefix_space")
    if isinstance(value, bool) and vocabulary.model == "llama":
        keys["tokenizer.ggml.add_space_prefix"] = value
    return keys if vocabulary.model != "bert" else {}


def _templates(folder: Folder) -> dict[str, object]:
    """Return the chat templates: the default one, and others by name."""
    templates: dict[str, str] = {}
    template = folder.rules.get("chat_template")
    if isinstance(template, str):
        templates["default"] = template
    elif isinstance(template, list):
        templates |= {str(entry["name"]): str(entry["template"]) for entry in template}
    if path := folder.file("chat_template.json"):
        templates.setdefault("default", str(read_json(path).get("chat_template", "")))
    if path := folder.file("chat_template.jinja"):
        templates["default"] = path.read_text(encoding="utf-8")
    for path in folder.files("additional_chat_templates/*.jinja"):
        templates[path.stem] = path.read_text(encoding="utf-8")
    others = {re.sub(r"\W", "_", name): text for name, text in templates.items() if name != "default"}
    keys: dict[str, object] = {f"tokenizer.chat_template.{name}": text for name, text in others.items()}
    if others:
        keys["tokenizer.chat_templates"] = list(others)
    return keys | ({"tokenizer.chat_template": templates["default"]} if templates.get("default") else {})


def _compare(folder: Folder, metadata: Mapping[str, Any]) -> list[str]:
    """Return a note if samples become other tokens with the GGUF vocabulary than with the folder's tokenizer."""
    if not folder.tokenizer:
        return []
    ours, theirs = Tokenizer.from_metadata(metadata), folder.rust()
    texts = (*SAMPLES, MARKED)
    different = [text for text in texts if ours.encode(text) != theirs.encode(text, add_special_tokens=False).ids]
    if not different:
        return []
    return [
        f"{len(different)} of {len(texts)} samples of text become other tokens than in the folder: {different[0]!r}"
    ]
