"""A folder's tokenizer → `tokenizer.*` of GGUF: tokens and their kinds, tokens with a role, chat templates."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from llamina.convert import sentencepiece
from llamina.convert.bytepairs import MARKED, SAMPLES, byte_pairs
from llamina.convert.safetensors import read_json
from llamina.convert.settings import Settings
from llamina.convert.words import Kind, Words
from llamina.errors import LlaminaError, ModelFileError, UnsupportedModel
from llamina.tokenizer import Tokenizer

_ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # misspelt in the format
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
}
_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.txt")


class Folder:
    """The files of a tokenizer, read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokenizer = self._read("tokenizer.json")
        self.rules = {**self._read("special_tokens_map.json"), **self._read("tokenizer_config.json")}
        if not isinstance(self.tokenizer.get("model", {}), dict):
            raise ModelFileError(f"{path / 'tokenizer.json'} has no model: fetch it again")

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json(path) if path.is_file() else {}

    def rust(self) -> RustTokenizer:
        try:
            rust = RustTokenizer.from_file(str(self.path / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more particular
            raise ModelFileError(f"{self.path / 'tokenizer.json'} cannot be read: {error}") from None
        rust.no_padding()
        rust.no_truncation()
        return rust

    def pieces(self) -> Path | None:
        """The file that SentencePiece trained, if there is one."""
        return next((self.path / name for name in _FILES[1:3] if (self.path / name).is_file()), None)

    def added(self) -> Iterator[tuple[int, str, bool]]:
        """Id, text and whether it is special, of tokens beside the model's own."""
        for text, token in self._read("added_tokens.json").items():
            yield int(token), str(text), False
        listed = {int(entry["id"]): entry for entry in self.tokenizer.get("added_tokens", ())}
        listed |= {int(token): entry for token, entry in self.rules.get("added_tokens_decoder", {}).items()}
        for token, entry in sorted(listed.items()):
            yield token, str(entry["content"]), bool(entry.get("special"))

    def named(self, role: str) -> str | None:
        """The text of the token with a role."""
        entry = self.rules.get(f"{role}_token")
        entry = entry.get("content") if isinstance(entry, dict) else entry
        return entry if isinstance(entry, str) else None


def tokenizer_metadata(
    path: Path, settings: Settings, size: int, pre: str | None, notes: list[str]
) -> dict[str, object]:
    """All of `tokenizer.*`, for a model with `size` rows of embeddings. What is worth saying goes to `notes`."""
    folder = Folder(path)
    words = _words(folder, pre)
    for token, text, special in folder.added():
        if token < size:
            words.add(token, text, special)
        else:
            notes.append(f"token {token} ({text}) is left out: the model has {size} embeddings")
    if len(words.texts) > size:
        raise ModelFileError(
            f"the tokenizer has {len(words.texts)} tokens, and the model {size}: they do not belong together"
        )
    words.pad(size)
    found = words.metadata() | _roles(folder, settings, words) | _frame(folder, words, notes) | _templates(folder)
    notes += _compare(folder, found)
    return found


def _words(folder: Folder, pre: str | None) -> Words:
    """The vocabulary itself, by the kind it is of."""
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
            return sentencepiece.from_pairs(folder.tokenizer)
        if kind == "Unigram":
            return sentencepiece.from_unigram(folder.tokenizer)
        if kind == "WordPiece" or (folder.path / "vocab.txt").is_file():
            return _word_pieces(folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, LlaminaError):
            raise
        raise ModelFileError(f"{folder.path / 'tokenizer.json'} is damaged: {error!r}") from None
    if kind is not None:
        raise UnsupportedModel(f"{folder.path / 'tokenizer.json'} holds a {kind} model that GGUF has no vocabulary for")
    raise ModelFileError(f"{folder.path} has none of {', '.join(_FILES)}: fetch the tokenizer too")


def _word_pieces(folder: Folder) -> Words:
    """BERT's: a token that begins a word gets `▁`, one that goes on loses `##`."""
    listed = folder.tokenizer.get("model", {}).get("vocab")
    if listed is None:
        lines = (folder.path / "vocab.txt").read_text(encoding="utf-8").splitlines()
        listed = {text: token for token, text in enumerate(lines)}
    words = Words.of("bert", listed)
    for token, text in enumerate(words.texts):
        if re.fullmatch(r"\[[A-Z]+\]", text):
            words.kinds[token] = Kind.CONTROL
        elif words.kinds[token] is Kind.NORMAL:
            words.texts[token] = text[2:] if text.startswith("##") else f"▁{text}"
    fold = next((step for step in sentencepiece.steps(folder.tokenizer.get("normalizer")) if "lowercase" in step), {})
    lowercase = bool(fold.get("lowercase", folder.rules.get("do_lower_case", True)))
    words.extra["tokenizer.ggml.normalizer.lowercase"] = lowercase
    accents = fold.get("strip_accents")
    words.extra["tokenizer.ggml.normalizer.strip_accents"] = lowercase if accents is None else bool(accents)
    return words


def _roles(folder: Folder, settings: Settings, words: Words) -> dict[str, object]:
    """The tokens with a role: as the tokenizer names them, else as config.json or the vocabulary numbers them."""
    ids = {text: token for token, text in enumerate(words.texts)}
    found: dict[str, object] = {}
    for role, key in _ROLES.items():
        other = {"bos": "cls", "eos": "sep"}.get(role, role)
        token = ids.get(folder.named(role) or folder.named(other) or "")
        if token is None:
            given = settings.get(f"{role}_token_id")
            given = given[0] if isinstance(given, list) and given else given
            token = given if isinstance(given, int) and 0 <= given < len(words.texts) else words.roles.get(role)
        if token is not None:
            found[f"tokenizer.ggml.{key}"] = token
    return found


def _frame(folder: Folder, words: Words, notes: list[str]) -> dict[str, object]:
    """Which tokens go before and after a text."""
    found: dict[str, object] = {}
    processors = list(sentencepiece.steps(folder.tokenizer.get("post_processor")))
    for step in processors:
        if step.get("type") == "TemplateProcessing":
            single = step.get("single", [])
            ends = [part.get("SpecialToken", {}).get("id") for part in (single[:1] + single[-1:])]
            found["tokenizer.ggml.add_bos_token"], found["tokenizer.ggml.add_eos_token"] = (bool(end) for end in ends)
        elif step.get("type") in ("RobertaProcessing", "BertProcessing"):
            found |= {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
            found["tokenizer.ggml.add_sep_token"] = True
    if words.model == "gpt2" and not found:
        found = {"tokenizer.ggml.add_bos_token": False}
    for key in ("add_bos_token", "add_eos_token"):
        told = folder.rules.get(key)
        if isinstance(told, bool):
            found[f"tokenizer.ggml.{key}"] = told
    told = folder.rules.get("add_prefix_space")
    if isinstance(told, bool) and words.model == "llama":
        found["tokenizer.ggml.add_space_prefix"] = told
    return found if words.model != "bert" else {}


def _templates(folder: Folder) -> dict[str, object]:
    """Chat templates: the default one, and others by name."""
    templates: dict[str, str] = {}
    told = folder.rules.get("chat_template")
    if isinstance(told, str):
        templates["default"] = told
    elif isinstance(told, list):
        templates |= {str(entry["name"]): str(entry["template"]) for entry in told}
    if (path := folder.path / "chat_template.json").is_file():
        templates.setdefault("default", str(read_json(path).get("chat_template", "")))
    if (path := folder.path / "chat_template.jinja").is_file():
        templates["default"] = path.read_text(encoding="utf-8")
    for path in sorted((folder.path / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    others = {re.sub(r"\W", "_", name): text for name, text in templates.items() if name != "default"}
    found: dict[str, object] = {f"tokenizer.chat_template.{name}": text for name, text in others.items()}
    if others:
        found["tokenizer.chat_templates"] = list(others)
    return found | ({"tokenizer.chat_template": templates["default"]} if templates.get("default") else {})


def _compare(folder: Folder, metadata: Mapping[str, Any]) -> list[str]:
    """A note where the vocabulary as GGUF has it and the folder's own tokenizer read a sample differently."""
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
