"""Tokenizers on their way to GGUF: the ids of their own libraries, and of llama.cpp; roles, kinds and templates."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from convert_folders import TEXTS, TOKENIZERS
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer
from tokenizers.models import BPE

from llamina.convert.settings import Settings
from llamina.errors import LlaminaError
from llamina.gguf import GGUF, write
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.bpe import cuts
from llamina.tokenizer.huggingface.byte_bpe import pretokenizer_name
from llamina.tokenizer.huggingface.metadata import tokenizer_metadata
from llamina.tokenizer.huggingface.vocabulary import Kind
from llamina.tokenizer.pretokenizers import PRETOKENIZERS

Change = Callable[[str, str, Callable[[dict[str, Any]], object]], Path]


def metadata(path: Path, size: int = 400, **config: Any) -> dict[str, Any]:
    notes: list[str] = []
    found = tokenizer_metadata(path, Settings(config), size, None, notes)
    assert notes == []
    return found


@pytest.fixture
def change(tmp_path: Path) -> Change:
    """A copy of a stored tokenizer with one of its JSON files edited."""

    def edit(kind: str, name: str, how: Callable[[dict[str, Any]], object]) -> Path:
        path = tmp_path / kind
        if not path.exists():
            shutil.copytree(TOKENIZERS / kind, path)
        value = json.loads((path / name).read_text())
        how(value)
        (path / name).write_text(json.dumps(value))
        return path

    return edit


@pytest.mark.parametrize("kind", ["bpe", "spm-json", "wordpiece"])
def test_ids_are_those_of_tokenizers(kind: str) -> None:
    theirs = RustTokenizer.from_file(str(TOKENIZERS / kind / "tokenizer.json"))
    ours = Tokenizer.from_metadata(metadata(TOKENIZERS / kind))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def test_gemma_4_keeps_its_merges(change: Change, tmp_path: Path) -> None:
    """SentencePiece's pieces, merged as byte-level BPE merges its own; nothing is put before a text."""
    from tokenizer.oracle import Oracle

    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    path = change("spm-json", "tokenizer.json", lambda value: value.update(normalizer=spaces))
    theirs, found = RustTokenizer.from_file(str(path / "tokenizer.json")), metadata(path, model_type="gemma4_text")
    assert found["tokenizer.ggml.model"] == "gemma4" and found["tokenizer.ggml.add_space_prefix"] is False
    write(tmp_path / "m.gguf", {"general.architecture": "gemma4", **found}, [])
    ours, peer = Tokenizer.from_metadata(found), Oracle(str(tmp_path / "m.gguf"))
    for text in TEXTS:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids == peer.encode(text)


@pytest.mark.parametrize("kind", ["spm", "unigram"])
def test_ids_are_those_of_sentencepiece(kind: str) -> None:
    ours = Tokenizer.from_metadata(metadata(TOKENIZERS / kind))
    facts = json.loads((TOKENIZERS / kind / "facts.json").read_text())
    for text, ids in zip(TEXTS, facts["ids"], strict=True):
        assert ours.encode(text) == ids


@pytest.mark.parametrize("kind", ["bpe", "spm", "spm-json", "unigram", "wordpiece"])
def test_ids_are_those_of_llama_cpp(kind: str, tmp_path: Path) -> None:
    from tokenizer.oracle import Oracle

    found = metadata(TOKENIZERS / kind)
    write(tmp_path / "v.gguf", {"general.architecture": "llama", **found}, [])
    peer, ours = Oracle(str(tmp_path / "v.gguf")), Tokenizer.from_metadata(found)
    for text in TEXTS:
        assert ours.encode(text, add_special=True) == peer.encode(text, add_special=True)


def test_byte_pairs() -> None:
    found = metadata(TOKENIZERS / "bpe", 300)
    texts, kinds = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    assert found["tokenizer.ggml.model"] == "gpt2" and found["tokenizer.ggml.pre"] == "dbrx"
    assert texts[284:289] == ["<think>", "<|begin|>", "<|end|>", "<|pad|>", "[PAD288]"] and len(texts) == 300
    assert kinds[283:289] == [Kind.NORMAL, Kind.USER_DEFINED, *[Kind.CONTROL] * 3, Kind.UNUSED]
    assert [found[f"tokenizer.ggml.{role}_token_id"] for role in ("bos", "eos", "padding")] == [285, 286, 287]
    assert found["tokenizer.ggml.add_bos_token"] is True and found["tokenizer.ggml.add_eos_token"] is False
    chat = Tokenizer.from_metadata(found).render_chat([{"role": "user", "content": "hi"}])
    assert chat == "<|begin|>user: hi\n"


def test_sentencepiece() -> None:
    found = metadata(TOKENIZERS / "spm")
    kinds = found["tokenizer.ggml.token_type"]
    assert found["tokenizer.ggml.model"] == "llama" and found["tokenizer.ggml.add_space_prefix"] is True
    assert kinds[:4] == [Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, Kind.BYTE]
    assert metadata(TOKENIZERS / "spm-json")["tokenizer.ggml.token_type"][:4] == kinds[:4]


def test_word_pieces() -> None:
    found = metadata(TOKENIZERS / "wordpiece")
    assert found["tokenizer.ggml.model"] == "bert" and found["tokenizer.ggml.normalizer.lowercase"] is True
    texts = found["tokenizer.ggml.tokens"]
    assert texts[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert not any(text.startswith("##") for text in texts)
    roles = {role: found[f"tokenizer.ggml.{role}_token_id"] for role in ("bos", "eos", "cls", "seperator", "mask")}
    assert roles == {"bos": 2, "eos": 3, "cls": 2, "seperator": 3, "mask": 4}


def test_a_vocabulary_without_json(tmp_path: Path) -> None:
    """vocab.txt alone."""
    listed = json.loads((TOKENIZERS / "wordpiece" / "tokenizer.json").read_text())["model"]["vocab"]
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(listed, key=listed.__getitem__)))
    shutil.copy(TOKENIZERS / "wordpiece" / "tokenizer_config.json", tmp_path)
    assert metadata(tmp_path) == metadata(TOKENIZERS / "wordpiece")


def test_roles_by_number_where_they_have_no_name(change: Change) -> None:
    path = change("bpe", "tokenizer_config.json", lambda rules: rules.pop("eos_token"))
    assert metadata(path, eos_token_id=[283, 286])["tokenizer.ggml.eos_token_id"] == 283
    assert "tokenizer.ggml.eos_token_id" not in metadata(path, eos_token_id=4000)


def test_what_the_config_says_of_the_frame_wins(change: Change) -> None:
    path = change("bpe", "tokenizer_config.json", lambda rules: rules.update(add_bos_token=False, add_eos_token=True))
    found = metadata(path)
    assert (found["tokenizer.ggml.add_bos_token"], found["tokenizer.ggml.add_eos_token"]) == (False, True)


def test_templates_with_names(change: Change) -> None:
    listed = [{"name": "default", "template": "plain"}, {"name": "tool use", "template": "tools"}]
    path = change("wordpiece", "tokenizer_config.json", lambda rules: rules.update(chat_template=listed))
    found = metadata(path)
    assert found["tokenizer.chat_template"] == "plain" and found["tokenizer.chat_template.tool_use"] == "tools"
    assert found["tokenizer.chat_templates"] == ["tool_use"]


# Spelt otherwise than these, and cut alike; the last but for letters with marks.
SAME = {"llada-moe": "qwen2", "minicpm5": "llama-bpe", "granite-embed-multi-97m": "gpt-4o"}


@pytest.mark.parametrize(
    "name",
    sorted({row.patterns: name for name, row in PRETOKENIZERS.items() if row.byte_level}.values()),
)
def test_every_way_to_cut_is_recognized(name: str) -> None:
    row = PRETOKENIZERS[SAME.get(name, name)]
    rust = RustTokenizer(BPE())
    rust.pre_tokenizer = cuts(PRETOKENIZERS[name])
    assert PRETOKENIZERS[pretokenizer_name(rust, row.ignore_merges, row.clean_spaces)].patterns == row.patterns


LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
PLAIN = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("gpt-2", [LEVEL]),
        ("starcoder", [pre_tokenizers.Digits(individual_digits=True), LEVEL]),
        ("dbrx", [rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}"]),
        ("stablelm2", [rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}"]),
        ("tekken", [CASED]),
    ],
)
def test_cuts_as_models_write_them(name: str, steps: list[Any]) -> None:
    """The pre-tokenizers of GPT-2, StarCoder, Llama 3, Qwen 2 and Mistral Nemo."""
    rust = RustTokenizer(BPE())
    if isinstance(steps[0], str):
        steps = [pre_tokenizers.Split(Regex(steps[0]), "isolated"), PLAIN]
    rust.pre_tokenizer = pre_tokenizers.Sequence(steps)
    assert pretokenizer_name(rust, PRETOKENIZERS[name].ignore_merges, True) == name


def test_cuts_that_differ_where_no_token_does(golden: Callable[[str], Path]) -> None:
    """Falcon cuts before digits, which its name in GGUF does not; its vocabulary has no token that would tell."""
    stored = GGUF.open(golden("vocab/ggml-vocab-falcon.gguf")).metadata
    ids = {text: i for i, text in enumerate(stored["tokenizer.ggml.tokens"])}
    rust = RustTokenizer(BPE(ids, [tuple(merge.split(" ")) for merge in stored["tokenizer.ggml.merges"]]))
    steps = [pre_tokenizers.Punctuation("contiguous"), LEVEL, pre_tokenizers.Digits(individual_digits=False)]
    three = pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")
    rust.pre_tokenizer = pre_tokenizers.Sequence([*steps, three])
    assert pretokenizer_name(rust, False, True) == "falcon"


def test_a_cut_without_a_name(change: Change) -> None:
    def words(tokenizer: dict[str, Any]) -> None:
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": "[aeiou]"}

    path = change("bpe", "tokenizer.json", words)
    with pytest.raises(LlaminaError, match=r"GGUF has no name for the tokenizer's pre-tokenizer.* --pre"):
        metadata(path)
    notes: list[str] = []
    found = tokenizer_metadata(path, Settings({}), 400, "gpt-2", notes)
    assert found["tokenizer.ggml.pre"] == "gpt-2"
    assert "samples of text become other tokens than in the folder" in notes[0]


@pytest.mark.parametrize(
    ("kind", "name", "how", "message"),
    [
        ("bpe", "tokenizer.json", lambda t: t["model"].update(type="Sorcery"), "has a Sorcery model"),
        ("bpe", "tokenizer.json", lambda t: t["model"].update(vocab={"a": -1}), "damaged"),
        ("bpe", "tokenizer.json", lambda t: t["model"].update(vocab={"a": 1 << 40}), "damaged"),
        ("bpe", "tokenizer.json", lambda t: t.update(model=3), "has no model"),
        ("bpe", "tokenizer.json", lambda t: t["model"].update(merges=[3]), "cannot be read|damaged"),
    ],
)
def test_damaged(kind: str, name: str, how: Callable[[Any], object], message: str, change: Change) -> None:
    with pytest.raises(LlaminaError, match=message):
        metadata(change(kind, name, how))


def test_a_damaged_protocol_buffer(tmp_path: Path) -> None:
    data = (TOKENIZERS / "spm" / "tokenizer.model").read_bytes()
    for content in (b"", b"\xff" * 40, data[: len(data) // 2 + 1], b"\x0a\x02\x0a\x09"):
        (tmp_path / "tokenizer.model").write_bytes(content)
        with pytest.raises(LlaminaError, match=r"tokenizer\.model"):
            metadata(tmp_path)


def test_too_few_embeddings() -> None:
    with pytest.raises(LlaminaError, match="has 284 tokens, and the model 100"):
        metadata(TOKENIZERS / "bpe", 100)


def test_an_added_token_without_an_embedding() -> None:
    notes: list[str] = []
    found = tokenizer_metadata(TOKENIZERS / "bpe", Settings({}), 287, None, notes)
    assert len(found["tokenizer.ggml.tokens"]) == 287  # type: ignore[arg-type]
    assert notes == ["token 287 (<|pad|>) is left out: the model has 287 embeddings"]
